package waits

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The periods of shortened configs that stories wait for.
const (
	Sweep = 2 * time.Second
	Lease = 15 * time.Second
)

// Shorten returns an example's config with shorter periods.
func Shorten(tb testing.TB, config string) string {
	tb.Helper()
	for old, short := range map[string]string{
		`"interval": "10s"`: fmt.Sprintf(`"interval": "%s"`, Sweep),
		`"renew_interval": "10s", "lease_duration": "30s"`: fmt.Sprintf(`"renew_interval": "%s", "lease_duration": "%s"`, Lease/3, Lease),
	} {
		if strings.Count(config, old) != 1 {
			tb.Fatalf("want %s once in\n%s", old, config)
		}
		config = strings.Replace(config, old, short, 1)
	}
	return config
}
