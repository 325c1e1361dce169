package fleet

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Surge is the number of instances beyond its size that a group, or a shard, may have
// while working instances are replaced: a count, or a percentage of the size. The zero
// value means one.
type Surge struct {
	Count   int // used if Percent is 0
	Percent int
}

// Of returns the number of instances for a size, at least one. A percentage is rounded up.
func (s Surge) Of(size int) int {
	if s.Percent > 0 {
		return max(1, (size*s.Percent+99)/100)
	}
	return max(1, s.Count)
}

func (s Surge) String() string {
	if s.Percent > 0 {
		return strconv.Itoa(s.Percent) + "%"
	}
	return strconv.Itoa(max(1, s.Count))
}

// MarshalText is the inverse of UnmarshalText.
func (s Surge) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// maxSurge is the largest count.
const maxSurge = 10_000

// ErrSurge states the valid forms of a Surge.
var ErrSurge = errors.New(`want a count from 1 to 10000, or a share of the size from "1%" to "100%"`)

// UnmarshalText reads a count ("3") or a percentage ("5%").
func (s *Surge) UnmarshalText(text []byte) error {
	number, percent := strings.CutSuffix(string(text), "%")
	n, err := strconv.ParseUint(number, 10, 16)
	limit := uint64(maxSurge)
	if percent {
		limit = 100
	}
	if err != nil || n < 1 || n > limit {
		return fmt.Errorf("%.80q: %w", text, ErrSurge)
	}
	*s = Surge{Count: int(n)}
	if percent {
		*s = Surge{Percent: int(n)}
	}
	return nil
}
