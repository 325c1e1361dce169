package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is written as a Go duration with an optional leading count of days:
// "90s", "1h30m", "30d", "1d12h". A day is 24 hours.
type Duration time.Duration

// Std returns d as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

func (d Duration) String() string {
	v := d.Std()
	if v < day {
		return short(v)
	}
	s := strconv.FormatInt(int64(v/day), 10) + "d"
	if v%day != 0 {
		s += short(v % day)
	}
	return s
}

// short omits the zero units of Go's format: 5m, not 5m0s.
func short(v time.Duration) string {
	s := v.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := parseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

// Age is a Duration that the empty string, its zero value, disables.
type Age time.Duration

// Std returns a as the standard library's type; 0 means off.
func (a Age) Std() time.Duration { return time.Duration(a) }

func (a Age) String() string {
	if a == 0 {
		return ""
	}
	return Duration(a).String()
}

// MarshalText implements encoding.TextMarshaler.
func (a Age) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses a duration, or the empty string for off. A zero duration is an error,
// because it is ambiguous.
func (a *Age) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*a = 0
		return nil
	}
	v, err := parseDuration(string(text))
	if err != nil {
		return err
	}
	if v == 0 {
		return fmt.Errorf(`%q is not an age: leave it empty ("") to switch it off`, text)
	}
	*a = Age(v)
	return nil
}

var dayCount = regexp.MustCompile(`^([0-9]{1,9})d(.*)$`)

var errDuration = errors.New(`want a duration such as "500ms", "30s", "1h30m", "30d" or "1d12h"`)

func parseDuration(s string) (time.Duration, error) {
	rest, days := s, int64(0)
	if m := dayCount.FindStringSubmatch(s); m != nil {
		days, _ = strconv.ParseInt(m[1], 10, 64) // nine digits always fit
		rest = m[2]
	}
	var v time.Duration
	if rest != s && rest == "" {
		rest = "0s"
	}
	if rest != s && strings.ContainsAny(rest, "+-") {
		return 0, fmt.Errorf("%.80q: %w", s, errDuration)
	}
	v, err := time.ParseDuration(rest)
	if err != nil {
		return 0, fmt.Errorf("%.80q: %w", s, errDuration)
	}
	if days > (math.MaxInt64-int64(max(v, 0)))/int64(day) {
		return 0, fmt.Errorf("%.80q is longer than a duration can be (292 years)", s)
	}
	return time.Duration(days)*day + v, nil
}
