package drain

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// doubts count the draining instances whose Node is ambiguous, in a metric.
type doubts struct{ gauge prometheus.Gauge }

// newDoubts registers the metric. Several controllers of one process share it.
func newDoubts(with prometheus.Registerer) (*doubts, error) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nstance_operator_ambiguous_nodes",
		Help: "Draining instances of which it is unclear which Node is theirs: nothing is evicted, until that is clear or their time is up.",
	})
	err := with.Register(gauge)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if had, ok := already.ExistingCollector.(prometheus.Gauge); ok {
			return &doubts{had}, nil
		}
	}
	return &doubts{gauge}, err
}

// note records whether a drain's Node is ambiguous now.
func (x *doubts) note(d *drain, is bool) {
	if x == nil || d.doubted == is {
		return
	}
	if d.doubted = is; is {
		x.gauge.Inc()
	} else {
		x.gauge.Dec()
	}
}
