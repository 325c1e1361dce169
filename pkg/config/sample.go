package config

import (
	"cmp"
	"encoding/base64"
	"math/rand/v2"

	"github.com/nstance/nstance/pkg/fleet"
)

// sampleID is a sample instance's ID without the kind.
const sampleID = "01jd3kqw00e0080000000000aa"

// The lengths of a sample instance's facts, in bytes. Those of real ones are not greater.
const (
	sampleNonce = 640     // of an instance whose names are as long as they may be
	sampleCAs   = 2 * 560 // of two CAs in PEM, since there are two while one is replaced
)

// sampleHosts are two addresses, the last one as long as that of a load balancer at AWS.
const sampleHosts = "[2001:db8:1234:5678:9abc:def0:1234:5678]:8999," +
	"nstance-0123456789abcdef01234567-0123456789abcdef.elb.ap-southeast-1.amazonaws.com"

// sampleFacts returns the facts of a sample instance of g, with the fields that a real one has
// when it is created.
func (s *Shard) sampleFacts(g fleet.Group) Facts {
	id, p := g.Kind+sampleID, s.Server.Provider
	found := make(map[string]string, len(s.Images))
	for name, image := range usableBy(g.Key.Tenant, s.Images, Image.who) {
		found[name] = cmp.Or(image.Fallback, "ami-0123456789abcdef0")
	}
	return Facts{
		Instance: InstanceFacts{ID: id, Kind: g.Kind, Arch: g.Arch, Type: g.InstanceType, Hostname: id, FQDN: id},
		Cluster: ClusterFacts{
			ID: s.Cluster.ID, CACert: "-----BEGIN CERTIFICATE-----\n" + dense(sampleCAs) + "\n-----END CERTIFICATE-----\n",
		},
		Server: ServerFacts{
			Shard: "shard" + dense(fleet.MaxNameLength-len("shard")), RegistrationAddr: sampleHosts + ":8992", AgentAddr: sampleHosts + ":8994",
			OperatorAddr: sampleHosts + ":8993",
		},
		Provider: ProviderFacts{Kind: p.Kind, Region: p.Region, Zone: p.Zone},
		Vars:     g.Vars,
		Image:    found,
		Nonce:    dense(sampleNonce),
	}
}

// dense returns n characters of base64 that no compression makes shorter than those of a key. They
// are always the same.
func dense(n int) string {
	random := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random) // never fails
	return base64.RawURLEncoding.EncodeToString(random)[:n]
}
