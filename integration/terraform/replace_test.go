//go:build integration

package terraform_test

import (
	"slices"
	"strings"
	"testing"
)

// TestReplacements checks docs/aws.md on changes: a plan shows what is replaced, and in which
// order; everything else is changed in place.
func TestReplacements(t *testing.T) {
	offline(t)
	www := func(more inputs) inputs {
		of := inputs{"port": 443, "target_port": 8443, "subnet_ids": []string{"subnet-0a1b2c3d"}, "cidrs": []string{"0.0.0.0/0"}}
		return inputs{"load_balancers": inputs{"www": with(of, more)}}
	}
	address := func(of string) inputs { return inputs{"leader_ipv4_address": of} }
	const group, targets, eni = "aws_autoscaling_group", "aws_lb_target_group", "aws_network_interface"
	anew := []string{"aws_lb delete create", "aws_lb_listener delete create"}
	within := func(subnets ...string) inputs { return www(inputs{"subnet_ids": subnets}) }
	for _, one := range []struct {
		what          string
		before, after inputs
		want          []string
	}{
		{"a longer boot", nil, inputs{"server_boot_timeout_seconds": 900}, []string{group + " delete create"}},
		{"images for packages", nil, images(), []string{group + " delete create"}},
		{"images for packages, with a time of their own", inputs{"server_boot_timeout_seconds": 900},
			with(images(), inputs{"server_boot_timeout_seconds": 900}), nil},
		{"another image of the machine", nil, inputs{"server_ami_id": "ami-0a1b2c3d"}, nil},
		{"another port behind the load balancer", www(nil), www(inputs{"target_port": 9443}), []string{targets + " create delete"}},
		{"another protocol", www(nil), www(inputs{"protocol": "UDP", "health_port": 80}), []string{targets + " create delete"}},
		{"another port of the load balancer alone", www(nil), www(inputs{"port": 8444}), nil},
		{"a load balancer that the internet reaches", www(nil), www(inputs{"internal": false}), anew},
		{"a load balancer in fewer subnets", within("subnet-0a1b2c3d", "subnet-0a1b2c3b"), within("subnet-0a1b2c3d"), anew},
		{"a load balancer in more subnets", within("subnet-0a1b2c3d"), within("subnet-0a1b2c3d", "subnet-0a1b2c3b"), nil},
		{"another address of the leader", address("10.0.0.10"), address("10.0.0.11"), []string{eni + " delete create"}},
		{"no standbys any more", with(address("10.0.0.10"), inputs{"standbys": 1}), address("10.0.0.10"), nil},
	} {
		t.Run(one.what, func(t *testing.T) {
			t.Parallel()
			p, modules := here.programs[0], here.copied(t)
			if _, err := p.apply(t, modules, shard(one.before)); err != nil {
				t.Fatal(err)
			}
			folder := root(t, modules, shard(one.after))
			p.must(t, folder, "plan", "-no-color", "-out=plan")
			var got []string
			for _, change := range p.shown(t, folder, "plan").changes.Changes {
				if actions := change.Change.Actions; len(actions) == 2 {
					kind := strings.Split(strings.TrimPrefix(change.Address, "module.shard."), ".")[0]
					got = append(got, kind+" "+strings.Join(actions, " "))
				}
			}
			if !slices.Equal(got, one.want) {
				t.Errorf("replaced are %v, want %v", got, one.want)
			}
		})
	}
}
