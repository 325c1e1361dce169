package config

import "github.com/nstance/nstance/pkg/fleet"

// Server is how a shard's servers run. What changes under Provider and Bind
// takes effect at a restart only.
type Server struct {
	Provider             Provider            `json:"provider"`
	Bind                 Addrs               `json:"bind"`
	Advertise            Addrs               `json:"advertise"`
	LeaderNetwork        LeaderNetwork       `json:"leader_network"`
	LeaderElection       LeaderElection      `json:"leader_election"`
	SubnetPools          map[string][]string `json:"subnet_pools,omitempty"`
	DynamicSubnetPools   []string            `json:"dynamic_subnet_pools,omitempty"` // empty: all
	RequestTimeout       Duration            `json:"request_timeout"`
	ShutdownTimeout      Duration            `json:"shutdown_timeout"`
	CreateRate           CreateRate          `json:"create_rate"`
	CreateBackoff        CreateBackoff       `json:"create_backoff"`
	Rotation             Rotation            `json:"rotation"` // of the whole shard
	Health               Health              `json:"health"`
	DefaultDrainTimeout  Duration            `json:"default_drain_timeout"` // 0: delete at once
	ImageRefreshInterval Duration            `json:"image_refresh_interval"`
	GarbageCollection    GarbageCollection   `json:"garbage_collection"`
	Expiry               Expiry              `json:"expiry"`
	OnDemand             OnDemand            `json:"on_demand"`
}

// The kinds of provider.
const (
	ProviderAWS     = "aws"
	ProviderDocker  = "docker"
	ProviderProcess = "process"
	ProviderFake    = "fake"
)

// Provider is what makes the machines. Options are the provider's own and are
// handed to it untouched; it checks them when it is opened.
type Provider struct {
	Kind    string         `json:"kind"`
	Region  string         `json:"region,omitempty"`
	Zone    string         `json:"zone,omitempty"`
	Options map[string]any `json:"options,omitempty"`
}

// Addrs are the addresses of the services, host:port each. To bind, an empty
// host or a wildcard listens on every interface, and port 0 takes any free
// one. To advertise, an empty or wildcard host stands for the address of the
// primary interface, and port 0 for the port that was bound. Metrics alone may
// be empty, which switches the endpoint off.
type Addrs struct {
	Health       string `json:"health_addr"`
	Election     string `json:"election_addr"`
	Registration string `json:"registration_addr"`
	Operator     string `json:"operator_addr"`
	Agent        string `json:"agent_addr"`
	Metrics      string `json:"metrics_addr"`
}

// LeaderNetwork is the fixed address that follows the leader. Empty: there is
// none. InterfaceID is what has it at the provider, which then moves it; without
// one somebody else does.
type LeaderNetwork struct {
	IPv4        string `json:"ipv4,omitempty"`
	IPv6        string `json:"ipv6,omitempty"`
	InterfaceID string `json:"interface_id,omitempty"`
}

// LeaderElection is the election's timing. RenewInterval is below half of
// LeaseDuration and FenceWindow below a quarter. GiveUp is how long a leader goes
// without what it needs until it asks others to lead.
type LeaderElection struct {
	RenewInterval Duration `json:"renew_interval"`
	LeaseDuration Duration `json:"lease_duration"`
	FenceWindow   Duration `json:"fence_window"`
	GiveUp        Duration `json:"give_up"`
}

// CreateRate bounds how fast instances are created, all groups together.
type CreateRate struct {
	PerSecond   float64 `json:"per_second"` // 0: unlimited
	Burst       int     `json:"burst"`
	Concurrency int     `json:"concurrency"`
}

// CreateBackoff is how a group is slowed down whose creates fail. Settle is how long
// an instance lives, registered, until its create counts as a success; Max is the
// longest wait between two attempts.
type CreateBackoff struct {
	Settle Duration `json:"settle"`
	Max    Duration `json:"max"`
}

// Rotation bounds how many instances there are beyond the size while those that
// work are replaced.
type Rotation struct {
	MaxSurge fleet.Surge `json:"max_surge"`
}

// Health says when silence is a sign of illness.
type Health struct {
	ReportInterval Duration `json:"report_interval"`
	MissedReports  int      `json:"missed_reports"`
	ShutdownGrace  Duration `json:"shutdown_grace"`
}

// GarbageCollection is the timing of the sweeps and what they wait for.
type GarbageCollection struct {
	Interval               Duration `json:"interval"`
	RegistrationTimeout    Duration `json:"registration_timeout"`
	DeletedRecordRetention Duration `json:"deleted_record_retention"`
	RequestRetention       Duration `json:"request_retention"`
}

// Expiry is how old instances may become.
type Expiry struct {
	EligibleAge Age `json:"eligible_age"`
	ForcedAge   Age `json:"forced_age"`
	OnDemandAge Age `json:"ondemand_age"`
}

// OnDemand is the timing of on-demand instances.
type OnDemand struct {
	CreateTimeout Duration `json:"create_timeout"`
}

// named lists the addresses with their keys, in the order of the struct.
func (a *Addrs) named() []namedAddr {
	return []namedAddr{
		{"health_addr", &a.Health}, {"election_addr", &a.Election},
		{"registration_addr", &a.Registration}, {"operator_addr", &a.Operator},
		{"agent_addr", &a.Agent}, {metricsAddr, &a.Metrics},
	}
}

const metricsAddr = "metrics_addr"

type namedAddr struct {
	key   string
	value *string
}
