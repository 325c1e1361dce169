package config

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Server is the configuration of a shard's servers. Changes of Provider and Bind take effect
// only at a restart.
type Server struct {
	Provider             Provider              `json:"provider"`
	Bind                 Addrs                 `json:"bind"`
	Advertise            Addrs                 `json:"advertise"`
	LeaderNetwork        LeaderNetwork         `json:"leader_network"`
	LeaderElection       LeaderElection        `json:"leader_election"`
	SubnetPools          map[string]SubnetPool `json:"subnet_pools,omitempty"`
	DynamicSubnetPools   []string              `json:"dynamic_subnet_pools,omitempty"` // empty: all
	RequestTimeout       Duration              `json:"request_timeout"`
	ShutdownTimeout      Duration              `json:"shutdown_timeout"`
	CreateRate           CreateRate            `json:"create_rate"`
	CreateBackoff        CreateBackoff         `json:"create_backoff"`
	Rotation             Rotation              `json:"rotation"` // of the whole shard
	Health               Health                `json:"health"`
	DefaultDrainTimeout  Duration              `json:"default_drain_timeout"` // 0: delete at once
	ImageRefreshInterval Duration              `json:"image_refresh_interval"`
	GarbageCollection    GarbageCollection     `json:"garbage_collection"`
	Expiry               Expiry                `json:"expiry"`
	OnDemand             OnDemand              `json:"on_demand"`
}

// The kinds of provider.
const (
	ProviderAWS     = "aws"
	ProviderDocker  = "docker"
	ProviderProcess = "process"
	ProviderFake    = "fake"
)

// Provider creates the machines. Options are passed to the provider unchanged, which checks them
// when it is opened.
type Provider struct {
	Kind    string         `json:"kind"`
	Region  string         `json:"region,omitempty"`
	Zone    string         `json:"zone,omitempty"`
	Options map[string]any `json:"options,omitempty"`
}

// Addrs are the addresses of the services, each host:port. When binding, an empty host or a
// wildcard means every interface, and port 0 any free port. When advertising, an empty or
// wildcard host means the address of the primary interface, and port 0 the bound port. Only
// Metrics may be empty, which disables the endpoint.
type Addrs struct {
	Health       string `json:"health_addr"`
	Election     string `json:"election_addr"`
	Registration string `json:"registration_addr"`
	Operator     string `json:"operator_addr"`
	Agent        string `json:"agent_addr"`
	Metrics      string `json:"metrics_addr"`
}

// LeaderNetwork is the fixed address that follows the leader; empty if there is none.
// InterfaceID is the provider's network interface with that address, which the leader attaches
// to its machine. Without InterfaceID the address is moved outside of Nstance.
type LeaderNetwork struct {
	IPv4        string `json:"ipv4,omitempty"`
	IPv6        string `json:"ipv6,omitempty"`
	InterfaceID string `json:"interface_id,omitempty"`
}

// LeaderElection is the election's timing. RenewInterval is below half of LeaseDuration and
// FenceWindow below a quarter. GiveUp is how long a leader may lack what it needs before it asks
// others to lead.
type LeaderElection struct {
	RenewInterval Duration `json:"renew_interval"`
	LeaseDuration Duration `json:"lease_duration"`
	FenceWindow   Duration `json:"fence_window"`
	GiveUp        Duration `json:"give_up"`
}

// CreateRate limits how fast instances of all groups are created.
type CreateRate struct {
	PerSecond   float64 `json:"per_second"` // 0: unlimited
	Burst       int     `json:"burst"`
	Concurrency int     `json:"concurrency"`
}

// CreateBackoff slows down the creates of a group whose creates fail. Settle is how long an
// instance must stay registered until its create counts as a success; Max is the longest wait
// between two attempts.
type CreateBackoff struct {
	Settle Duration `json:"settle"`
	Max    Duration `json:"max"`
}

// Rotation bounds the surplus instances of a group while working ones are replaced.
type Rotation struct {
	MaxSurge fleet.Surge `json:"max_surge"`
}

// Health determines when an instance is unhealthy.
type Health struct {
	ReportInterval Duration `json:"report_interval"`
	MissedReports  int      `json:"missed_reports"`
	ShutdownGrace  Duration `json:"shutdown_grace"`
}

// Silence returns for how long an agent may be silent.
func (h Health) Silence() time.Duration {
	return time.Duration(h.ReportInterval) * time.Duration(h.MissedReports)
}

// ShortestOperatorRetention is the shortest retention of removed operators. It is longer than an operator's
// certificate and nonce are valid: until these end, the tombstone refuses them.
const ShortestOperatorRetention = 100 * day

// GarbageCollection is the timing of the sweeps and retention.
type GarbageCollection struct {
	Interval                 Duration `json:"interval"`
	RegistrationTimeout      Duration `json:"registration_timeout"`
	DeletedRecordRetention   Duration `json:"deleted_record_retention"`
	RequestRetention         Duration `json:"request_retention"`
	CertificateLogRetention  Age      `json:"certificate_log_retention"` // after their ends
	RemovedOperatorRetention Duration `json:"removed_operator_retention"`
}

// Expiry is the maximum age of instances.
type Expiry struct {
	EligibleAge Age `json:"eligible_age"`
	ForcedAge   Age `json:"forced_age"`
	OnDemandAge Age `json:"ondemand_age"`
}

// OnDemand is the timing of on-demand instances.
type OnDemand struct {
	CreateTimeout Duration `json:"create_timeout"`
}

// named returns the addresses with their keys, in the order of the struct.
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
