package config

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// findings collects problems of single fields. Fields listed in broken, and fields below them,
// are not reported again.
type findings struct {
	broken   []string
	problems Problems
}

func (f *findings) isBroken(path string) bool {
	return slices.ContainsFunc(f.broken, func(b string) bool { return under(path, b) })
}

func (f *findings) addf(path, format string, args ...any) {
	if !f.problems.full() && !f.isBroken(path) {
		f.problems.addf(path, format, args...)
	}
}

// name checks an id such as a group's.
func (f *findings) name(path, s string) {
	if s == "" {
		f.addf(path, "required: want an id of lowercase letters, digits and single inner hyphens, at most %d characters", fleet.MaxNameLength)
	} else if err := fleet.CheckName(s); err != nil {
		f.addf(path, "%v", err)
	}
}

var labelPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

const maxLabelLength = 64

// label checks a name that is used only within the config.
func (f *findings) label(path, s string) {
	if len(s) > maxLabelLength || !labelPattern.MatchString(s) {
		f.addf(path, "%.80q is not a valid name: want letters, digits and inner dots, hyphens and underscores, at most %d characters",
			s, maxLabelLength)
	}
}

func (f *findings) oneOf(path, s string, options ...string) bool {
	if slices.Contains(options, s) {
		return true
	}
	want := strings.Join(options, " or ")
	if n := len(options) - 1; n > 1 {
		want = strings.Join(options[:n], ", ") + " or " + options[n]
	}
	if s == "" {
		f.addf(path, "required: want %s", want)
	} else {
		f.addf(path, "%.80q is not valid: want %s", s, want)
	}
	return false
}

func (f *findings) given(path, s, what string) bool {
	if s == "" {
		f.addf(path, "required: want %s", what)
	}
	return s != ""
}

func (f *findings) duration(path string, d Duration, least, most time.Duration) {
	between(f, path, d, Duration(least), Duration(most))
}

func between[T cmp.Ordered](f *findings, path string, got, least, most T) {
	if got < least || got > most {
		f.addf(path, "%v is outside the limits: want %v to %v", got, least, most)
	}
}

// refer checks that name is one of the section's entries.
func refer[V any](f *findings, path, what, name, section string, entries map[string]V) (V, bool) {
	entry, ok := entries[name]
	if !ok && !f.problems.full() && !f.isBroken(section) {
		f.addf(path, "no such %s %.80q %s", what, name, have(entries))
	}
	return entry, ok
}

// unique checks that no entry of a list is empty or repeated.
func (f *findings) unique(path string, list []string, what string) {
	given := make(map[string]bool, len(list))
	for i, s := range list {
		switch {
		case s == "":
			f.addf(at(path, i), "empty: want %s", what)
		case given[s]:
			f.addf(at(path, i), "%.80q is listed already", s)
		}
		given[s] = true
	}
}
