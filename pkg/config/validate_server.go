package config

import (
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// awsPrefix matches valid prefixes of secrets' names at AWS, and awsReserved those that AWS
// reserves.
var (
	awsPrefix   = regexp.MustCompile(`^([A-Za-z0-9_.-]+/)+$`)
	awsReserved = regexp.MustCompile(`^(?i:aws|ssm)`)
	awsRegion   = regexp.MustCompile(`^[a-z0-9-]+$`)
)

var envPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (v *validator) cluster() {
	c := v.shard.Cluster
	v.name("cluster.id", c.ID)
	secrets := "cluster.secrets"
	if !v.oneOf(secrets+".provider", c.Secrets.Provider, SecretsObjectStorage, SecretsSecretsManager, SecretsParameterStore) {
		return
	}
	if c.Secrets.Provider != SecretsObjectStorage {
		checkAWSPrefix(&v.findings, secrets+".prefix", c.Secrets.Prefix)
		if region := c.Secrets.Region; region != "" && !awsRegion.MatchString(region) {
			v.addf(secrets+".region", "%.80q is not valid: want an AWS region, such as eu-central-1", region)
		}
		if c.Secrets.EncryptionKey != (KeySource{}) {
			v.addf(secrets+".encryption_key", "only the provider %q seals its secrets: remove it", SecretsObjectStorage)
		}
		if len(c.Secrets.OldEncryptionKeys) > 0 {
			v.addf(secrets+".old_encryption_keys", "only the provider %q seals its secrets: remove it", SecretsObjectStorage)
		}
		return
	}
	if c.Secrets.Region != "" {
		v.addf(secrets+".region", "the secrets of %q are in the bucket: remove it (use an ARN for a key in another region)", SecretsObjectStorage)
	}
	v.secretsPrefix(secrets+".prefix", c.Secrets.Prefix)
	v.keySource(secrets+".encryption_key", c.Secrets.EncryptionKey)
	for i, key := range c.Secrets.OldEncryptionKeys {
		v.keySource(at(secrets+".old_encryption_keys", i), key)
	}
}

// checkAWSPrefix checks a prefix of secrets at AWS. It must not begin with a slash, since the
// policy's ARN pattern already has the slash that a parameter's name begins with.
func checkAWSPrefix(f *findings, path, prefix string) {
	switch {
	case strings.HasPrefix(prefix, "/"):
		f.addf(path, "%.80q begins with a slash: want it without, such as nstance/example/ (parameter names get one automatically)", prefix)
	case !awsPrefix.MatchString(prefix) || len(prefix) > 256:
		f.addf(path, "%.80q is not valid: want a path that ends in /, such as nstance/example/", prefix)
	case awsReserved.MatchString(prefix):
		f.addf(path, "%.80q is reserved by AWS: want one that begins with neither aws nor ssm, such as nstance/example/", prefix)
	}
}

// ObjectPrefixes returns the beginnings of the keys of all objects, but for secrets with a prefix of
// their own.
func ObjectPrefixes() []string {
	return []string{
		"applied/", "certlog/", "cluster/", "config/", "events/", "files/", "groups/", "instance/", "leader/", "probe/", "request/",
	}
}

// secretsPrefix keeps secrets out of the other parts of the bucket, such as files/, whose
// objects are given to instances.
func (v *validator) secretsPrefix(path, prefix string) {
	taken := slices.DeleteFunc(ObjectPrefixes(), func(p string) bool { return p == "cluster/" })
	taken = append(taken, "cluster/operator/")
	trimmed := strings.TrimSuffix(prefix, "/")
	if trimmed == prefix || !isRelativePath(trimmed) {
		v.addf(path, "%.80q is not valid: want a relative path that ends in /, such as cluster/secret/", prefix)
		return
	}
	if prefix == "cluster/" || slices.ContainsFunc(taken, func(t string) bool { return strings.HasPrefix(prefix, t) }) {
		v.addf(path, "%.80q holds other objects: want a path of its own, such as cluster/secret/", prefix)
	}
}

func (v *validator) keySource(path string, key KeySource) {
	if !v.oneOf(path+".provider", key.Provider, KeyFromEnv, KeyFromFile, SecretsSecretsManager, SecretsParameterStore) {
		return
	}
	switch {
	case key.Provider == KeyFromEnv && !envPattern.MatchString(key.Source):
		v.addf(path+".source", "%.80q can't be the name of an environment variable: want letters, digits and underscores", key.Source)
	case key.Source == "":
		v.addf(path+".source", "required: want the path of a file or the name of a secret")
	}
}

func (v *validator) server() {
	s := v.shard.Server
	v.provider(s.Provider)
	v.addresses(s)
	v.leaderNetwork(s.LeaderNetwork, s.Provider.Kind)
	v.election(s.LeaderElection)
	v.subnetPools(s)
	v.duration("server.request_timeout", s.RequestTimeout, 100*time.Millisecond, 10*time.Minute)
	v.duration("server.shutdown_timeout", s.ShutdownTimeout, 0, 10*time.Minute)
	between(&v.findings, "server.create_rate.per_second", s.CreateRate.PerSecond, 0, 10_000)
	between(&v.findings, "server.create_rate.burst", s.CreateRate.Burst, 1, 10_000)
	between(&v.findings, "server.create_rate.concurrency", s.CreateRate.Concurrency, 1, 1000)
	v.duration("server.create_backoff.settle", s.CreateBackoff.Settle, 0, time.Hour)
	v.duration("server.create_backoff.max", s.CreateBackoff.Max, time.Second, time.Hour)
	v.duration("server.health.report_interval", s.Health.ReportInterval, 100*time.Millisecond, time.Hour)
	between(&v.findings, "server.health.missed_reports", s.Health.MissedReports, 1, 100)
	v.duration("server.health.shutdown_grace", s.Health.ShutdownGrace, 0, time.Hour)
	v.duration("server.default_drain_timeout", s.DefaultDrainTimeout, 0, maxDrainTimeout)
	v.duration("server.image_refresh_interval", s.ImageRefreshInterval, time.Minute, 30*day)
	v.duration("server.garbage_collection.interval", s.GarbageCollection.Interval, time.Second, day)
	v.duration("server.garbage_collection.registration_timeout", s.GarbageCollection.RegistrationTimeout, 5*time.Second, day)
	v.duration("server.garbage_collection.deleted_record_retention", s.GarbageCollection.DeletedRecordRetention, time.Minute, 30*day)
	v.duration("server.garbage_collection.request_retention", s.GarbageCollection.RequestRetention, time.Hour, 365*day)
	checkAge(v, "server.garbage_collection.certificate_log_retention", s.GarbageCollection.CertificateLogRetention, day)
	v.duration("server.garbage_collection.removed_operator_retention", s.GarbageCollection.RemovedOperatorRetention,
		ShortestOperatorRetention, 3650*day)
	v.duration("server.on_demand.create_timeout", s.OnDemand.CreateTimeout, time.Second, 7*day)
	v.expiry(s.Expiry)
	if v.checks.Server != nil {
		for _, p := range v.checks.Server(s) {
			v.addf(p.Path, "%s", p.Message)
		}
	}
}

func (v *validator) provider(p Provider) {
	path := "server.provider"
	v.oneOf(path+".kind", p.Kind, ProviderAWS, ProviderDocker, ProviderProcess, ProviderFake)
	if p.Kind == ProviderAWS {
		v.given(path+".region", p.Region, "an AWS region, such as eu-central-1")
		v.given(path+".zone", p.Zone, "an availability zone, such as eu-central-1a")
	}
}

func (v *validator) addresses(s Server) {
	ports := map[string]string{}
	for _, bind := range s.Bind.named() {
		path := "server.bind." + bind.key
		if bind.key == metricsAddr && *bind.value == "" {
			continue
		}
		port, ok := v.address(path, *bind.value)
		if !ok || port == "0" {
			continue
		}
		if other, taken := ports[port]; taken {
			v.addf(path, "port %s is taken by %s: want distinct ports", port, other)
		} else {
			ports[port] = bind.key
		}
	}
	bound := s.Bind.named()
	for i, advertise := range s.Advertise.named() {
		if *advertise.value != *bound[i].value { // otherwise checked above
			v.address("server.advertise."+advertise.key, *advertise.value)
		}
	}
}

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?$`)

// address checks host:port, where host may be empty, and returns the port.
func (v *validator) address(path, addr string) (string, bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		v.addf(path, "%.80q is not an address: want host:port, such as 0.0.0.0:8990 or [::]:8990", addr)
		return "", false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		v.addf(path, "%.80q is not a port: want 0 to 65535", port)
		return "", false
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && !hostPattern.MatchString(host) {
		v.addf(path, "%.80q is not a host: want an IP address or a DNS name", host)
		return "", false
	}
	return strconv.FormatUint(n, 10), true
}

func (v *validator) leaderNetwork(n LeaderNetwork, kind string) {
	path := "server.leader_network"
	if ip, ok := hostAddress(n.IPv4); n.IPv4 != "" && (!ok || !ip.Is4()) {
		v.addf(path+".ipv4", "%.80q is not an IPv4 address of a host", n.IPv4)
	}
	if ip, ok := hostAddress(n.IPv6); n.IPv6 != "" && (!ok || !ip.Is6() || ip.Is4In6()) {
		v.addf(path+".ipv6", "%.80q is not an IPv6 address of a host", n.IPv6)
	}
	hasAddress := n.IPv4 != "" || n.IPv6 != ""
	if kind == ProviderAWS && hasAddress {
		v.given(path+".interface_id", n.InterfaceID, "the network interface that has the address, such as eni-0abc")
	}
	if n.InterfaceID != "" && !hasAddress {
		v.addf(path+".ipv4", "required with interface_id, unless ipv6 is set: want the interface's address")
	}
}

// hostAddress parses an address that a host can have.
func hostAddress(s string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(s)
	return ip, err == nil && ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast()
}

func (v *validator) election(e LeaderElection) {
	path := "server.leader_election"
	v.duration(path+".lease_duration", e.LeaseDuration, time.Second, 10*time.Minute)
	if e.RenewInterval < Duration(100*time.Millisecond) || e.RenewInterval >= e.LeaseDuration/2 {
		v.addf(path+".renew_interval", "%v is outside the limits: want 100ms or longer, and less than half of lease_duration (%v)",
			e.RenewInterval, e.LeaseDuration)
	}
	if e.FenceWindow <= 0 || e.FenceWindow >= e.LeaseDuration/4 {
		v.addf(path+".fence_window", "%v is outside the limits: want more than 0s, and less than a quarter of lease_duration (%v)",
			e.FenceWindow, e.LeaseDuration)
	}
	v.duration(path+".give_up", e.GiveUp, time.Second, day)
}

func (v *validator) subnetPools(s Server) {
	owners := map[string]string{}
	for _, name := range sortedKeys(s.SubnetPools) {
		path, subnets := join("server.subnet_pools", name), s.SubnetPools[name].Subnets
		v.name(path, name)
		accessOf(v).who(path+".tenants", s.SubnetPools[name].Tenants)
		if s.SubnetPools[name].Tenants != nil {
			path += ".subnets" // otherwise the pool is a plain list
		}
		if len(subnets) == 0 {
			v.addf(path, "empty: want at least one of the provider's subnets")
		}
		v.unique(path, subnets, "one of the provider's subnets")
		for i, subnet := range subnets {
			if owner, taken := owners[subnet]; taken && owner != name && subnet != "" {
				v.addf(at(path, i), "subnet %.80q is in the pool %q already: want it in one pool only", subnet, owner)
			} else {
				owners[subnet] = name
			}
		}
	}
	for i, name := range s.DynamicSubnetPools {
		refer(&v.findings, at("server.dynamic_subnet_pools", i), "subnet pool", name, "server.subnet_pools", s.SubnetPools)
	}
	v.unique("server.dynamic_subnet_pools", s.DynamicSubnetPools, "the id of a subnet pool")
}

// checkAge checks an age of at most ten years, which may be off.
func checkAge(v *validator, path string, value Age, low time.Duration) {
	if value != 0 {
		v.duration(path, Duration(value), low, 3650*day)
	}
}

func (v *validator) expiry(e Expiry) {
	path := "server.expiry"
	for _, age := range []struct {
		key   string
		value Age
	}{{"eligible_age", e.EligibleAge}, {"forced_age", e.ForcedAge}, {"ondemand_age", e.OnDemandAge}} {
		checkAge(v, path+"."+age.key, age.value, time.Second)
	}
	if e.EligibleAge > 0 && e.ForcedAge > 0 && e.EligibleAge >= e.ForcedAge {
		v.addf(path+".eligible_age", "%v is not below forced_age (%v): every replacement would be forced", e.EligibleAge, e.ForcedAge)
	}
}
