//go:build integration

package terraform_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// refusal is an error that a plan has to find, before anything is created.
type refusal struct {
	what   string
	inputs inputs // the erroneous inputs, over those of a fixture
	want   string // part of the only error; empty: there is none
}

// TestRefusals: each error is found by one check, whose message says what is wrong and what would
// be valid. So this test fails if a check is removed.
func TestRefusals(t *testing.T) {
	offline(t)
	for name, all := range map[string][]refusal{
		"network": networkRefusals(),
		"shard":   slices.Concat(leaderRefusals(), configRefusals(), machineRefusals(), balancerRefusals()),
	} {
		few := map[string]inputs{"network": publicVPC(), "shard": shard(nil).modules["shard"]}[name]
		for _, one := range all {
			t.Run(one.what, func(t *testing.T) {
				t.Parallel()
				said := here.programs[0].refused(t, fixture{modules: map[string]inputs{name: with(few, one.inputs)}})
				switch {
				case one.want == "" && len(said) > 0:
					t.Errorf("it is refused:\n%s", strings.Join(said, "\n"))
				case one.want == "":
				case len(said) != 1:
					t.Errorf("there are %d errors, want one with %q:\n%s", len(said), one.want, strings.Join(said, "\n"))
				case !strings.Contains(said[0], one.want):
					t.Errorf("it says %q, want %q in it", said[0], one.want)
				}
			})
		}
	}
}

// TestRefusedBeforeThereIsASubnet: in the first plan nothing has an id yet, and still it finds that
// a subnet will have no IPv6, with a message.
func TestRefusedBeforeThereIsASubnet(t *testing.T) {
	offline(t)
	few := with(shard(nil).modules["shard"], inputs{
		"subnet": `${module.network.subnets["servers"]}`, "enable_leader_ipv6": true,
	})
	said := here.programs[0].refused(t, fixture{modules: map[string]inputs{"network": publicVPC(), "shard": few}})
	if len(said) != 1 || !strings.Contains(said[0], "enable_leader_ipv6: want false, not true: the subnet, 10.0.0.0/24") {
		t.Errorf("it says %q", said)
	}
}

// TestKeyBeforeItExists: the ARN of a KMS key that the same apply creates is unknown in the first plan, which works nevertheless.
func TestKeyBeforeItExists(t *testing.T) {
	offline(t)
	account := with(fixtures()["account"].modules["account"], inputs{"kms_key_arn": "${module.cluster.encryption_key_arn}"})
	all := fixture{modules: map[string]inputs{"cluster": {"cluster_id": "example"}, "account": account}}
	if said := here.programs[0].refused(t, all); len(said) > 0 {
		t.Errorf("it says %q", said)
	}
}

// refused returns the errors of a plan.
func (p program) refused(t *testing.T, of fixture) []string {
	t.Helper()
	folder := root(t, here.copied(t), of)
	p.must(t, folder, "get")
	out, err := p.run(t, folder, "plan", "-json")
	var said []string
	for line := range strings.Lines(out) {
		var one struct {
			Diagnostic *struct{ Severity, Summary, Detail string }
		}
		if json.Unmarshal([]byte(line), &one) == nil && one.Diagnostic != nil && one.Diagnostic.Severity == "error" {
			said = append(said, one.Diagnostic.Summary+": "+one.Diagnostic.Detail)
		}
	}
	if (err == nil) != (len(said) == 0) {
		t.Fatalf("%v, but the errors are %q", err, said)
	}
	return said
}

// planned are the public subnet "servers" of a VPC and other subnets.
func planned(others inputs) inputs {
	return inputs{"subnets": with(publicVPC()["subnets"].(inputs), others)}
}

// networkRefusals are ranges that AWS refuses or another subnet has, and missing internet access.
func networkRefusals() []refusal {
	beside := func(cidr string) inputs { return planned(inputs{"other": subnet("public", "a", cidr, nil, nil)}) }
	vpc := func(cidr string) inputs {
		return inputs{"vpc_cidr": cidr, "subnets": inputs{"a": subnet("isolated", "a", cidr, nil, nil)}}
	}
	numbered := func(numbers ...any) inputs {
		subnets := inputs{}
		for n, number := range numbers {
			subnets[string(rune('a'+n))] = subnet("public", "a", "10.0."+string(rune('1'+n))+".0/24", number, nil)
		}
		return inputs{"enable_ipv6": true, "subnets": subnets}
	}
	dual := func(pool any, more inputs) inputs {
		return inputs{
			"enable_ipv6": true, "nat": "none",
			"subnets": with(inputs{"machines": subnet("private", "a", "10.0.1.0/24", 1, pool)}, more),
		}
	}
	isolated := inputs{"isolated": subnet("isolated", "a", "10.0.2.0/24", nil, nil)}
	existing := func(id string) inputs {
		return inputs{"vpc_cidr": nil, "vpc_id": "vpc-0a1b2c3d", "subnets": inputs{"old": inputs{"role": "private", "id": id}}}
	}
	return []refusal{
		{"a subnet that exists and is the cluster's", existing("subnet-0a1b2c3b"), ""},
		{"a subnet of another cluster", existing("subnet-0a1b2c3f"), "want a subnet that is tagged with example"},
		{"a cluster's id that is none", inputs{"cluster_id": "Example"}, "cluster_id: want lowercase letters"},
		{"a VPC of IPv6", inputs{"vpc_cidr": "2001:db8::/64"}, "vpc_cidr: want an IPv4 range by its first address, /16 to /28"},
		{"a VPC by another address of it", inputs{"vpc_cidr": "10.0.0.1/16"}, "such as 10.0.0.0/16, not 10.0.0.1/16"},
		{"a VPC that is too large", inputs{"vpc_cidr": "10.0.0.0/15"}, "not 10.0.0.0/15"},
		{"the smallest VPC", vpc("10.0.0.0/28"), ""},
		{"a subnet by another address of it", beside("10.0.1.1/24"), "subnets: cidr: want IPv4 ranges by their first address"},
		{"a subnet of IPv6", beside("2001:db8::/64"), "2001:db8::/64 (other)"},
		{"a subnet that is too small", beside("10.0.1.0/29"), "10.0.1.0/29 (other)"},
		{"a subnet of another VPC", beside("10.1.0.0/24"), "want ranges within the VPC's, 10.0.0.0/16, not 10.1.0.0/24 (other)"},
		{"a subnet of a further range of the VPC", with(beside("10.1.0.0/24"), inputs{
			"vpc_secondary_cidrs": []string{"10.1.0.0/20"},
		}), ""},
		{"a further range that is too large", inputs{"vpc_secondary_cidrs": []string{"100.64.0.0/10"}},
			"vpc_secondary_cidrs: want IPv4 ranges by their first address, /16 to /28"},
		{"a subnet in a subnet", beside("10.0.0.128/25"), "want ranges of which no two overlap, not 10.0.0.128/25 (other), 10.0.0.0/24"},
		{"one range for two subnets", beside("10.0.0.0/24"), "want ranges of which no two overlap"},
		{"a subnet beside a subnet", beside("10.0.1.0/24"), ""},
		{"half a number of IPv6", numbered(1.5), "ipv6_number: want a whole number from 0 to 255, and that for new subnets only, not 1.5 (a)"},
		{"a number of IPv6 that is too large", numbered(256), "not 256 (a)"},
		{"one number of IPv6 for two subnets", numbered(7, 7), "ipv6_number: want another one for each subnet, not 7 (a), 7 (b)"},
		{"private servers with IPv6 alone", dual(nil, nil), "nat: want single or per-zone, not none, for private subnets that may have servers"},
		{"private instances with IPv6 alone", dual("workers", nil), ""},
		{"private instances beside servers in a public subnet",
			dual(nil, inputs{"servers": subnet("public", "a", "10.0.2.0/24", nil, nil)}), ""},
		{"private servers that reach AWS through endpoints", dual(nil, isolated), ""},
		{"and through those of others", with(dual(nil, isolated), inputs{"interface_endpoints": []string{"ec2", "ssm"}}), "by IPv4 only"},
	}
}

// leaderRefusals are addresses that the leader can't have.
func leaderRefusals() []refusal {
	v4 := func(address string) inputs { return inputs{"leader_ipv4_address": address} }
	v6 := func(address string) inputs { return inputs{"enable_leader_ipv6": true, "leader_ipv6_address": address} }
	without := maps.Clone(shard(nil).modules["shard"]["subnet"].(inputs))
	delete(without, "ipv6_cidr")
	return []refusal{
		{"the address of the VPC's router", v4("10.0.0.1"), "leader_ipv4_address: want none of those that AWS reserves in 10.0.0.0/24"},
		{"the last one that AWS keeps", v4("10.0.0.3"), "not 10.0.0.3"},
		{"the first one that AWS does not keep", v4("10.0.0.4"), ""},
		{"the last address of the subnet", v4("10.0.0.255"), "the first four and the last, not 10.0.0.255"},
		{"an address with zeros in front", v4("10.0.0.010"), "leader_ipv4_address: want an IPv4 address such as 10.0.0.10, not 10.0.0.010"},
		{"no address", v4("ten"), "not ten"},
		{"an address of another subnet", v4("10.0.1.10"), "leader_ipv4_address: want one of the subnet, 10.0.0.0/24, not 10.0.1.10"},
		{"an IPv6 address that AWS keeps", v6("2001:db8::3"), "leader_ipv6_address: want none of those that AWS reserves in 2001:db8::/64"},
		{"the last IPv6 address", v6("2001:db8::ffff:ffff:ffff:ffff"), "the first four and the last"},
		{"an IPv6 address in capitals", v6("2001:DB8::10"), "want an IPv6 address in its shortest form"},
		{"an IPv6 address with zeros", v6("2001:db8:0:0::10"), "not 2001:db8:0:0::10"},
		{"an IPv6 address of another subnet", v6("2001:db8:1::10"), "leader_ipv6_address: want one of the subnet, 2001:db8::/64"},
		{"an IPv6 address", v6("2001:db8::10"), ""},
		{"IPv6 in a subnet without it", inputs{"subnet": without, "enable_leader_ipv6": true},
			"enable_leader_ipv6: want false, not true: the subnet, 10.0.0.0/24"},
		{"IPv6 in a subnet with an empty range", inputs{"subnet": with(without, inputs{"ipv6_cidr": ""}), "enable_leader_ipv6": true},
			"has no IPv6 range"},
		{"a subnet by another address of it", inputs{"subnet": with(without, inputs{"cidr": "10.0.0.1/24"})},
			"subnet.cidr: want an IPv4 range by its first address"},
	}
}
