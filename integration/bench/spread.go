package main

import (
	"math"
	"slices"
	"time"
)

// spread is a set of samples.
type spread []time.Duration

// at returns the q-th quantile by nearest rank, so that it is always one of the samples: with few
// samples the 99th percentile is their maximum.
func (s spread) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

func (s spread) median() time.Duration { return s.at(0.5) }
func (s spread) p99() time.Duration    { return s.at(0.99) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// p50p99 returns the two usual figures; only the second has a target.
func (s spread) p50p99(name, unit string, one time.Duration, target float64) []figure {
	value := func(d time.Duration) float64 { return float64(d) / float64(one) }
	return []figure{
		newFigure(name+"_p50", value(s.median()), unit, len(s)),
		newFigure(name+"_p99", value(s.p99()), unit, len(s)).atMost(target),
	}
}
