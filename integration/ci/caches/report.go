package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// part is a kind of entry.
type part struct {
	kind, use string
	minutes   int    // to build all of it, on two idle cores
	besides   string // other costs
}

// The cost of a run without Go's module and build caches, measured on two cores: the modules of the
// product, its tests, the tools, and the entries here; and the race detector's build of all of it,
// in addition to the ordinary one.
const (
	moduleDownloads = 1000 // MiB
	compileMinutes  = 20
)

// parts are all kinds, with measurements on two cores.
func parts() []part {
	return []part{
		{"plane", "make testplane: tests on Kubernetes", 10, ""},
		{"stand-ins", "make integration-images: images of others", 9, " and packages of Debian"},
		{"terraform", "make terraform-check: OpenTofu and tflint", 10, ""},
		{"binaries", "make e2e: the previous version", 2, ""},
		{"runtime", "make integration, where the host lacks a capability", 0, ""},
	}
}

// report prints the entries of a folder and the cost of rebuilding them, in the style of .ci/check.
func report(out io.Writer, dir string, all []entry, most int64) error {
	var total int64
	for _, e := range all {
		total += e.size
	}
	fmt.Fprintf(out, "  ok       %-10s %s of at most %s (%s) in %s\n", "caches", mebibytes(total), mebibytes(most), variable, dir)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	minutes := 0
	for _, p := range parts() {
		fmt.Fprintf(table, "           %s\t%s\t%s\n", p.kind, state(p, all), p.use)
		minutes += p.minutes
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "           With none of it, a run builds about %d minutes longer, as measured on two cores.\n"+
		"           Go's own caches are not counted here: without them it downloads about %d MiB of modules,\n"+
		"           and compiles for about %d minutes longer.\n",
		minutes, moduleDownloads, compileMinutes)
	return err
}

// state describes the entries of a kind.
func state(p part, all []entry) string {
	var size int64
	var count int
	var took time.Duration
	for _, e := range all {
		if e.kind != p.kind || e.partial() {
			continue
		}
		count++
		size += e.size
		took += e.took
	}
	switch {
	case count == 0 && p.minutes == 0:
		return "none: seconds"
	case count == 0:
		return fmt.Sprintf("none: about %d minutes%s", p.minutes, p.besides)
	}
	text := fmt.Sprintf("%d, %s", count, mebibytes(size))
	if took > 0 {
		text += fmt.Sprintf(", built in %s", took)
	}
	return text
}

func mebibytes(bytes int64) string {
	if bytes >= 10<<30 || bytes >= 1<<30 && bytes%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// shortened replaces the home folder by ~.
func shortened(dir, home string) string {
	if rest, found := strings.CutPrefix(dir, home+"/"); found && home != "" {
		return "~/" + rest
	}
	return dir
}
