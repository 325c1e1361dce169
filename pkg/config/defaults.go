package config

import (
	"cmp"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// defaulter sets fields that the text left out. A zero field may be set in the text, so it
// uses the paths that the decoder saw.
type defaulter map[string]bool

func setDefault[T any](d defaulter, path string, field *T, value T) {
	if !d[path] {
		*field = value
	}
}

// SecretsPrefix returns the default prefix of the names of secrets. A bucket belongs to one
// cluster; an account may have many.
func SecretsPrefix(provider, cluster string) string {
	if provider == SecretsSecretsManager || provider == SecretsParameterStore {
		return "nstance/" + cluster + "/"
	}
	return "cluster/secret/"
}

// applyDefaults completes s. seen has the path of every field in the text.
func applyDefaults(s *Shard, seen map[string]bool) {
	d := defaulter(seen)
	setDefault(d, "cluster.secrets.provider", &s.Cluster.Secrets.Provider, SecretsObjectStorage)
	setDefault(d, "cluster.secrets.prefix", &s.Cluster.Secrets.Prefix, SecretsPrefix(s.Cluster.Secrets.Provider, s.Cluster.ID))
	d.server(&s.Server)
	for name, image := range s.Images {
		path := join("images", name)
		setDefault(d, path+".sort", &image.Sort, "creation-date")
		setDefault(d, path+".order", &image.Order, "desc")
		s.Images[name] = image
	}
	for name, tenant := range s.Tenants {
		s.Tenants[name] = Tenant{Quota: tenant.Quota.completed(name)}
	}
	for name, cert := range s.Certificates {
		setDefault(d, join("certificates", name)+".ttl", &cert.TTL, 365*24)
		s.Certificates[name] = cert
	}
	s.Defaults.Userdata = completeUserdata(s.Defaults.Userdata)
	for name, template := range s.Templates {
		template.Userdata = completeUserdata(template.Userdata)
		s.Templates[name] = template
	}
}

func (d defaulter) server(s *Server) {
	setDefault(d, "server.bind.health_addr", &s.Bind.Health, "0.0.0.0:8990")
	setDefault(d, "server.bind.election_addr", &s.Bind.Election, "0.0.0.0:8991")
	setDefault(d, "server.bind.registration_addr", &s.Bind.Registration, "0.0.0.0:8992")
	setDefault(d, "server.bind.operator_addr", &s.Bind.Operator, "0.0.0.0:8993")
	setDefault(d, "server.bind.agent_addr", &s.Bind.Agent, "0.0.0.0:8994")
	bind := s.Bind.named()
	for i, advertised := range s.Advertise.named() {
		setDefault(d, "server.advertise."+advertised.key, advertised.value, *bind[i].value)
	}
	d.durations(s)
	rate, burst := 10.0, 20
	if s.Provider.Kind == ProviderAWS { // the refill rate of AWS launches, which all shards of an account and region share
		rate, burst = 2, 5
	}
	setDefault(d, "server.create_rate.per_second", &s.CreateRate.PerSecond, rate)
	setDefault(d, "server.create_rate.burst", &s.CreateRate.Burst, burst)
	setDefault(d, "server.create_rate.concurrency", &s.CreateRate.Concurrency, 16)
	setDefault(d, "server.rotation.max_surge", &s.Rotation.MaxSurge, fleet.Surge{Percent: 10})
	setDefault(d, "server.health.missed_reports", &s.Health.MissedReports, 3)
}

func (d defaulter) durations(s *Server) {
	for path, def := range map[string]struct {
		field *Duration
		value time.Duration
	}{
		"leader_election.renew_interval":                {&s.LeaderElection.RenewInterval, 10 * time.Second},
		"leader_election.lease_duration":                {&s.LeaderElection.LeaseDuration, 30 * time.Second},
		"leader_election.fence_window":                  {&s.LeaderElection.FenceWindow, time.Second},
		"leader_election.give_up":                       {&s.LeaderElection.GiveUp, 30 * time.Second},
		"request_timeout":                               {&s.RequestTimeout, 30 * time.Second},
		"shutdown_timeout":                              {&s.ShutdownTimeout, 10 * time.Second},
		"health.report_interval":                        {&s.Health.ReportInterval, time.Minute},
		"health.shutdown_grace":                         {&s.Health.ShutdownGrace, 30 * time.Second},
		"default_drain_timeout":                         {&s.DefaultDrainTimeout, 5 * time.Minute},
		"image_refresh_interval":                        {&s.ImageRefreshInterval, day / 4},
		"garbage_collection.interval":                   {&s.GarbageCollection.Interval, 2 * time.Minute},
		"garbage_collection.registration_timeout":       {&s.GarbageCollection.RegistrationTimeout, 5 * time.Minute},
		"garbage_collection.deleted_record_retention":   {&s.GarbageCollection.DeletedRecordRetention, 30 * time.Minute},
		"garbage_collection.request_retention":          {&s.GarbageCollection.RequestRetention, 7 * day},
		"garbage_collection.removed_operator_retention": {&s.GarbageCollection.RemovedOperatorRetention, 400 * day},
		"create_backoff.settle":                         {&s.CreateBackoff.Settle, 2 * time.Minute},
		"create_backoff.max":                            {&s.CreateBackoff.Max, 5 * time.Minute},
		"on_demand.create_timeout":                      {&s.OnDemand.CreateTimeout, 10 * time.Minute},
	} {
		setDefault(d, "server."+path, def.field, Duration(def.value))
	}
	setDefault(d, "server.garbage_collection.certificate_log_retention", &s.GarbageCollection.CertificateLogRetention, Age(400*day))
}

// completeUserdata treats {} as absent, and sets the default source and encoding.
func completeUserdata(u *fleet.Userdata) *fleet.Userdata {
	if u == nil || *u == (fleet.Userdata{}) {
		return nil
	}
	full := *u
	full.Source = cmp.Or(full.Source, userdataInline)
	full.Encoding = cmp.Or(full.Encoding, encodingPlain)
	return &full
}
