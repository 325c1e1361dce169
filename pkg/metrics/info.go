package metrics

import (
	"cmp"
	"slices"
)

// The types of metrics, as Prometheus names them.
const (
	TypeGauge     = "gauge"
	TypeCounter   = "counter"
	TypeHistogram = "histogram"
)

// Info describes a metric.
type Info struct {
	Name   string
	Type   string
	Help   string
	Labels []string
}

// Sorted returns infos sorted by name.
func Sorted(infos []Info) []Info {
	return slices.SortedFunc(slices.Values(infos), func(a, b Info) int { return cmp.Compare(a.Name, b.Name) })
}
