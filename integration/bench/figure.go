package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// figure is one measured number.
type figure struct {
	Name   string   `json:"name"`
	Value  float64  `json:"value"`
	Unit   string   `json:"unit"`
	N      int      `json:"n"` // the number of samples, or what was measured
	Target *float64 `json:"target,omitempty"`
	Met    *bool    `json:"met,omitempty"`
	Note   string   `json:"note,omitempty"`

	atLeast bool // the target is a lower bound
}

func newFigure(name string, value float64, unit string, n int) figure {
	return figure{Name: name, Value: value, Unit: unit, N: n}
}

// atMost sets a target that f must not exceed.
func (f figure) atMost(target float64) figure { return f.against(target, f.Value <= target, false) }

// noLess sets a target that f must reach.
func (f figure) noLess(target float64) figure { return f.against(target, f.Value >= target, true) }

func (f figure) against(target float64, met, atLeast bool) figure {
	f.Target, f.Met, f.atLeast = &target, &met, atLeast
	return f
}

func (f figure) noted(format string, args ...any) figure {
	f.Note = fmt.Sprintf(format, args...)
	return f
}

func (f figure) missed() bool { return f.Met != nil && !*f.Met }

func anyMissed(figures []figure) bool {
	for _, f := range figures {
		if f.missed() {
			return true
		}
	}
	return false
}

// verdict returns the figure's target and whether it was met, for the table.
func (f figure) verdict() (target, met string) {
	if f.Target == nil {
		return "", ""
	}
	sign := "≤ "
	if f.atLeast {
		sign = "≥ "
	}
	if f.missed() {
		return sign + short(*f.Target), "MISSED"
	}
	return sign + short(*f.Target), "met"
}

// short formats a number with about three significant digits.
func short(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

func (f figure) String() string {
	target, met := f.verdict()
	return fmt.Sprintf("%s: %s %s (n=%d) %s %s %s", f.Name, short(f.Value), f.Unit, f.N, target, met, f.Note)
}

// printAll prints the table, then one line of JSON per figure.
func printAll(out io.Writer, figures []figure) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tVALUE\tUNIT\tN\tTARGET\t\tNOTE")
	for _, f := range figures {
		target, met := f.verdict()
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", f.Name, short(f.Value), f.Unit, f.N, target, met, f.Note)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, f := range figures {
		if err := lines.Encode(f); err != nil {
			return err
		}
	}
	return nil
}
