package awsclient_test

import (
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/awsclient"
)

const mac = "02:00:00:00:00:01"

// lists is a metadata service with an interface's properties, by the last part of the path.
type lists map[string]string

func (l lists) RoundTrip(r *http.Request) (*http.Response, error) {
	last := strings.TrimPrefix(r.URL.Path, "/latest/meta-data/network/interfaces/macs/"+mac+"/")
	text, ok := l[last]
	header, status := http.Header{}, http.StatusOK
	switch {
	case r.Method == http.MethodPut:
		text = "session"
		header.Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
	case !ok:
		status = http.StatusNotFound
	case text == "denied":
		status = http.StatusForbidden
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func addresses(t *testing.T, l lists) ([]netip.Addr, error) {
	t.Helper()
	return awsclient.Addresses(t.Context(), &http.Client{Transport: l}, mac)
}

// TestAddresses returns an interface's addresses from the machine's metadata service.
func TestAddresses(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	four, more, six := netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("2001:db8::9")
	for name, c := range map[string]struct {
		lists lists
		want  []netip.Addr
		says  string // empty: no error
	}{
		"both":          {lists{"local-ipv4s": "10.0.0.4\n10.0.0.9", "ipv6s": "2001:db8::9\n"}, []netip.Addr{four, more, six}, ""},
		"no IPv6":       {lists{"local-ipv4s": "10.0.0.4"}, []netip.Addr{four}, ""},
		"another's":     {lists{}, nil, ""},
		"no address":    {lists{"local-ipv4s": "10.0.0.4\neth0"}, nil, `"eth0"`},
		"a zone":        {lists{"ipv6s": "fe80::1%eth0"}, nil, "fe80::1%eth0"},
		"without end":   {lists{"ipv6s": strings.Repeat("2001:db8::9\n", 1000)}, nil, "ipv6s is longer than 4096 bytes"},
		"not permitted": {lists{"local-ipv4s": "denied"}, nil, "403"},
	} {
		got, err := addresses(t, c.lists)
		if !slices.Equal(got, c.want) || c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, %v; want %v, and an error that says %q", name, got, err, c.want, c.says)
		}
	}
}

// FuzzAddresses: any answer is returned completely, or is an error.
func FuzzAddresses(f *testing.F) {
	for _, seed := range []string{"", "10.0.0.4\n10.0.0.9", "2001:db8::9", "fe80::1%eth0", "::ffff:10.0.0.1", "10.0.0.4,10.0.0.5", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "denied" {
			return // reserved by the test's server
		}
		got, err := addresses(t, lists{"local-ipv4s": text})
		if err == nil && len(got) != len(strings.Fields(text)) || err != nil && got != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		for _, addr := range got {
			if !addr.IsValid() || addr.Zone() != "" {
				t.Errorf("%q: %v", text, addr)
			}
		}
	})
}
