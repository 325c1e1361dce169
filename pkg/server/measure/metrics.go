package measure

import (
	"time"

	"github.com/nstance/nstance/pkg/metrics/prometheus"
	"github.com/nstance/nstance/pkg/tracing"
)

// Server is the metrics of a server. Safe for concurrent use.
type Server struct {
	Calls        *Calls
	Replacements *Replacements

	takeovers    *prometheus.Tally
	takeoverTime *prometheus.Histogram
	process      process
	term         term
	groups       groups
}

// process is the metrics that every server has.
type process struct {
	leader, ready, epoch                       *prometheus.Metric
	expires, issued                            *prometheus.Metric
	audit, auditOmitted                        *prometheus.Metric
	connections, agentStreams, operatorStreams *prometheus.Metric
}

// term is the metrics that a leader has.
type term struct{ due, queued, creating, changes, throttled, problems, groups *prometheus.Metric }

// groups is the metrics that a leader has of each group.
type groups struct {
	wanted, actual, outdated, silent, ready, phases *prometheus.Metric
	failing, failures, backoff                      *prometheus.Metric
}

// New adds the metrics of a server to a registry. read returns the server's state; it must not
// block. Calls that belong to a trace are made a part of it by tracer, which may be nil.
func New(r *prometheus.Registry, tracer *tracing.Tracer, read func() State) *Server {
	m := &Server{
		Calls: newCalls(r, tracer), Replacements: newReplacements(r),
		takeovers: r.Tally("nstance_takeovers_total", "Terms in which this server has led."),
		takeoverTime: r.Histogram("nstance_takeover_duration_seconds",
			"Time from winning the election until the leader acts.", []float64{0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60}),
		process: newProcess(r), term: newTerm(r), groups: newGroups(r),
	}
	m.takeovers.Add(0)
	r.OnScrape(func(s *prometheus.Sample) { m.show(s, read()) })
	return m
}

// TookOver counts a takeover.
func (m *Server) TookOver(took time.Duration) {
	m.takeovers.Add(1)
	m.takeoverTime.Observe(took)
}

func newProcess(r *prometheus.Registry) process {
	return process{
		leader: r.Gauge("nstance_leader", "1 on the leader of the shard, 0 on a standby."),
		ready:  r.Gauge("nstance_ready", "1 if the server leads or could lead, as its health endpoint says."),
		epoch:  r.Gauge("nstance_epoch", "Epoch of the current leader, as far as this server knows."),
		expires: r.Gauge("nstance_certificate_expiry_timestamp_seconds",
			"When a certificate expires: that of the cluster's CA, or of this server.", "certificate"),
		issued: r.Counter("nstance_certificates_issued_total", "Certificates that this server has signed, renewals included.", "kind"),
		audit:  r.Counter("nstance_audit_events_total", "Audit events, whether or not they have a line in the log.", "kind", "outcome"),
		auditOmitted: r.Counter("nstance_audit_omitted_lines_total",
			"Audit events without a line, because their source or all of them had too many."),
		connections: r.Gauge("nstance_handshakes", "Connections that have not authenticated yet, by whether their handshake has begun.",
			"state"),
		agentStreams:    r.Gauge("nstance_agent_streams", "Instances whose agents have streams open to this server."),
		operatorStreams: r.Gauge("nstance_operator_watches", "Watches that operators have open to this server."),
	}
}

func newTerm(r *prometheus.Registry) term {
	return term{
		due:      r.Gauge("nstance_groups_due", "Groups that the leader is about to decide about."),
		queued:   r.Gauge("nstance_groups_waiting", "Groups with creates that wait for their turn."),
		creating: r.Gauge("nstance_creates_in_progress", "Creates that have begun and not ended."),
		changes: r.Gauge("nstance_provider_accepted_changes_per_second",
			"Creates and deletes per second that the provider accepts while it throttles; 0 if it does not."),
		throttled: r.Gauge("nstance_provider_throttled_seconds", "For how long the provider has throttled calls; absent if it does not.",
			"calls"),
		problems: r.Gauge("nstance_problems", "Known problems that last, by reason.", "reason"),
		groups: r.Gauge("nstance_groups",
			"Groups of the shard. If they are more than those with series of their own, the others are summed."),
	}
}

func newGroups(r *prometheus.Registry) groups {
	of := func(name, help string, more ...string) *prometheus.Metric {
		return r.Gauge(name, help, append([]string{"tenant", "group"}, more...)...)
	}
	return groups{
		wanted: of("nstance_group_wanted_instances", "Size of the group."),
		actual: of("nstance_group_actual_instances",
			"Instances that run, have reported to this leader, have their files, are not leaving, and are not known to be dead."),
		outdated: of("nstance_group_outdated_instances",
			"Actual instances that were made from another definition, and are to be replaced, unless the rollout is paused."),
		silent:   of("nstance_group_silent_instances", "Running instances whose agent is not connected."),
		ready:    of("nstance_group_ready", "1 if the group has the instances that it should have, and no others."),
		phases:   of("nstance_instances", "Instances by phase, those on demand included.", "phase"),
		failing:  of("nstance_group_creates_failing", "1 while the creates of the group fail."),
		failures: of("nstance_group_create_failures", "Consecutive failures of the group's creates."),
		backoff:  of("nstance_group_create_backoff_seconds", "Time until a create is tried again after failures."),
	}
}
