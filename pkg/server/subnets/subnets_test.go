package subnets_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/subnets"
)

// free answers with the free addresses of subnets, or an error, and counts the calls.
type free struct {
	addresses map[string]int
	err       error
	calls     int
}

func (f *free) FreeAddresses(context.Context, []string) (map[string]int, error) {
	f.calls++
	return f.addresses, f.err
}

func chooser(port provider.SubnetCapacity, missing *[]string) *subnets.Chooser {
	return subnets.New(subnets.Config{
		Port: port, Used: func() []string { return []string{"s1", "s2"} }, Go: func(f func()) { f() },
		Timeout: func() time.Duration { return time.Second }, Logger: slog.New(slog.DiscardHandler),
		Missing: func(_ context.Context, err error) { *missing = append(*missing, err.Error()) },
	})
}

func TestPlace(t *testing.T) {
	pool := fleet.Group{SubnetPool: "pool", Subnets: []string{"s1", "s2"}}
	for name, c := range map[string]struct {
		port    provider.SubnetCapacity
		want    string // of four creates; "-": none
		missing string
	}{
		"the first, if the provider does not say": {nil, "s1 s1 s1 s1", ""},
		"the first that has room":                 {&free{addresses: map[string]int{"s1": 1, "s2": 2}}, "s1 s2 s2 -", ""},
		"not one that does not exist":             {&free{addresses: map[string]int{"s2": 9}}, "s2 s2 s2 s2", "use subnet s1"},
		"the first, if the answer failed":         {&free{err: errors.New("no answer")}, "s1 s1 s1 s1", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var missing, got []string
			s := chooser(c.port, &missing)
			for range 4 {
				subnet, err := s.Place(t.Context(), pool)
				if err != nil {
					if subnet = "-"; !errors.Is(err, provider.ErrSubnetFull) {
						t.Errorf("%s: %v", name, err)
					}
				}
				got = append(got, subnet)
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%s: %s, want %s", name, text, c.want)
			}
			if told := strings.Join(missing, " "); (told == "") != (c.missing == "") || !strings.Contains(told, c.missing) || len(missing) > 1 {
				t.Errorf("%s: reported %q", name, missing)
			}
			if f, ok := c.port.(*free); ok && f.calls != 1 {
				t.Errorf("%s: %d calls within a moment", name, f.calls)
			}
		})
	}
}

// TestARefusedSubnetComesBack: a subnet that refused a create is left out for longer each time,
// until it accepts one.
func TestARefusedSubnetComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := fleet.Group{Subnets: []string{"s1", "s2"}}
		s := chooser(nil, nil)
		placed := func(want string) {
			t.Helper()
			if got, err := s.Place(t.Context(), pool); got != want || err != nil {
				t.Errorf("after %s: %q, %v, want %q", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), got, err, want)
			}
		}
		s.Refuse("s1", provider.ErrSubnetFull, time.Now())
		placed("s2")
		time.Sleep(time.Second)
		placed("s1")
		s.Refuse("s1", provider.ErrSubnetFull, time.Now())
		time.Sleep(time.Second)
		placed("s2")
		time.Sleep(time.Second)
		placed("s1")
		s.Accept("s1")
		s.Refuse("s1", provider.ErrSubnetFull, time.Now())
		time.Sleep(time.Second)
		placed("s1")
		if _, refused := s.Entries(); refused != 1 {
			t.Errorf("%d refusals", refused)
		}
		time.Sleep(time.Hour)
		s.Forget(time.Now())
		if _, refused := s.Entries(); refused != 0 {
			t.Errorf("%d refusals an hour later", refused)
		}
	})
}
