package identities_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/identities"
)

// unseen is a provider that shows no machine.
type unseen struct{}

func (unseen) Named(string) []fleet.InstanceID         { return nil }
func (unseen) NamedBelow(string) []fleet.InstanceID    { return nil }
func (unseen) Addressed(netip.Addr) []fleet.InstanceID { return nil }

const own, other = fleet.InstanceID("knd00vhnczb3efy4867r3gas63hms"), fleet.InstanceID("knd00vhnczb3eeapb8hk065vaf1b5")

// others knows a server, and the instances own and other by the names of their records.
func others() *identities.Identities {
	servers := identities.NewDirectory(func() identities.Servers {
		return identities.Servers{DNS: []string{"server.internal"}}
	}, nil, nil)
	return identities.New(func(fleet.InstanceID) bool { return true }, servers, unseen{}, []fleet.Instance{
		{ID: own, Phase: fleet.Running, Rev: 1, Hostname: "web.internal"},
		{ID: other, Phase: fleet.Running, Rev: 1, Hostname: "db.internal"},
	})
}

// TestEncoded: another's id or name is found in a certificate however often, and wherever, it is
// percent-encoded.
func TestEncoded(t *testing.T) {
	k, rest := others(), string(other[1:])
	deep := "%" + strings.Repeat("25", 20) + "6b" + rest
	for _, uri := range []string{
		"https://x/" + string(other), "https://x/%6b" + rest, "https://x/%4B" + rest, "https://x/%4b" + rest,
		"https://x/%256b" + rest, "https://x/%25%36%62" + rest, "https://x/%2525256B" + rest, "https://x/" + deep,
		"https://x/a%2F" + string(other), "https://x/a%2f%6B" + rest, "https://x/?%zz&a=%6b" + rest, "https://x/?a=100%&b=%6b" + rest,
		"https://x/#%6b" + rest, "https://%6b" + rest + "@x/", "https://x:y%40%6b" + rest + "@x/", "urn:a:%6b" + rest,
		"https://x/db%2Einternal", "https://x/d%62.internal", "https://x/" + string(other) + "%61",
		"https://db%252Einternal/", "https://server%252einternal/", "https://server%25252einternal/",
	} {
		if err := k.Permit(own, &pki.LeafRequest{URI: []string{uri}}); err == nil {
			t.Errorf("%s is permitted", uri)
		}
	}
	for _, r := range []*pki.LeafRequest{{CN: "a %6b" + rest}, {Organization: []string{"%6B" + rest}}} {
		if err := k.Permit(own, r); err == nil {
			t.Errorf("%+v is permitted", r)
		}
	}
}

// TestHarmlessEncoding: what is percent-encoded and belongs to the instance, or to none, is
// permitted.
func TestHarmlessEncoding(t *testing.T) {
	id := string(own)
	for _, uri := range []string{
		"https://x/" + id, "https://x/my%20" + id, "https://x/%6B" + id[1:], "https://x/%256b" + id[1:], "https://web.internal/a%2Fb%20c",
		"https://x/web%2einternal", "https://x/?a=100%&b=%zz&c=%2", "https://x/%C3%28%00", "urn:a:%25",
	} {
		if err := others().Permit(own, &pki.LeafRequest{URI: []string{uri}, Organization: []string{"100% web", "%"}}); err != nil {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// TestWords: a part of any text is a server's name or address, or another instance's.
func TestWords(t *testing.T) {
	servers := identities.NewDirectory(func() identities.Servers {
		all := identities.Servers{DNS: []string{"nstance.internal.", "ns", "nstance_server"}}
		for _, text := range []string{"10.9.9.9", "fd00::7", "fe80::1%eth0"} {
			all.IPs = append(all.IPs, netip.MustParseAddr(text))
		}
		return all
	}, nil, nil)
	k := identities.New(func(fleet.InstanceID) bool { return true }, servers, unseen{}, []fleet.Instance{
		{ID: other, Phase: fleet.Running, Rev: 1, Hostname: "db.internal", IPs: []string{"10.0.0.5", "2001:db8::5"}},
		{ID: own, Phase: fleet.Running, Rev: 1, IPs: []string{"fd00::7:1"}},
	})
	for text, permitted := range map[string]bool{
		"system:node:nstance.internal": false, "nodes of Nstance.Internal.": false, "a/nstance.internal/b": false, "system:node:ns": false,
		"system:node:10.9.9.9": false, "10.9.9.9:8443": false, "(10.9.9.9)": false, "at 10.0.0.5.": false, "::ffff:10.0.0.5": false,
		"system:node:fd00::7": false, "[fd00::7]:8443": false, "FD00:0:0:0::7": false, "fd00:0:0:0:0:0:0:7:x": false, "x:2001:db8::5:y": false,
		"system:node:10%2E9.9.9": false, "system:node:" + string(own): true, "nstance.internal.example": true, "my-nstance.internal": true,
		"nstance_server": false, "system:node:nstance_server": false, "ns/a": false, "fe80::1": false,
		"a-" + string(other): false, "fd00::7:2": false,
		"my_nstance.internal": false, "node_db.internal": false, "ns-agents": true, "ns.example": true, "ns_x": false,
		"[fd00::7:1]:8443": true, "system:node:fd00::7:1": true,
		"110.9.9.9": true, "10.9.9.91": true, "10.9.9.9.9": true, "fd00::8": true, "fd00:7": true, "::": true, ":::::::::::::::": true,
		"nsx":       true,
		"127.0.0.1": true, "": true,
	} {
		for _, r := range []*pki.LeafRequest{{CN: "a " + text}, {Organization: []string{text}}, {URI: []string{"urn:" + text}}} {
			if err := k.Permit(own, r); (err == nil) != permitted {
				t.Errorf("%+v: %v, want it permitted: %t", r, err, permitted)
			}
		}
	}
}
