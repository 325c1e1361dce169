//go:build integration

package terraform_test

import (
	"maps"
	"strings"
)

// configRefusals are errors of the config that a server would find only after everything is
// created.
func configRefusals() []refusal {
	group := func(tenant, name string, more inputs) inputs {
		return inputs{"groups": inputs{tenant: inputs{name: with(inputs{"template": "web"}, more)}}}
	}
	web := func(name string, more inputs) inputs {
		return inputs{"groups": inputs{}, "templates": inputs{name: with(inputs{"kind": "web"}, more)}}
	}
	drain := func(timeout string) inputs { return group("default", "web", inputs{"drain_timeout": timeout}) }
	pools := func(more inputs) inputs {
		return inputs{"subnet_pools": with(inputs{"workers": []string{"subnet-0b1b2c3d"}}, more)}
	}
	long := strings.Repeat("x", 65)
	return []refusal{
		{"the tenants of a pool that there is not", inputs{"subnet_pool_tenants": inputs{"wrkers": []string{"*"}}},
			"subnet_pool_tenants: want names of subnet_pools"},
		{"vars of tenants that are not said", inputs{"tenants": []string{"acme"}, "vars": inputs{"a": "b"}},
			"vars_tenants: want the tenants whose groups have the vars"},
		{"a tenant that there is not", group("acme", "web", nil), "groups: want default or a name in tenants () as tenant: acme"},
		{"a surge of nothing", group("default", "web", inputs{"max_surge": "0"}), "groups: max_surge: want a count from 1 to 10000, or a share"},
		{"a surge of more than all", group("default", "web", inputs{"max_surge": "101%"}), "not 101% (web)"},
		{"the largest surges", group("default", "web", inputs{"max_surge": "10000"}), ""},
		{"the largest share", group("default", "web", inputs{"max_surge": "100%"}), ""},
		{"a surge of a template that is no number", web("web", inputs{"max_surge": "some"}), "templates: max_surge: want a count"},
		{"a load balancer twice", with(inputs{"load_balancers": inputs{"own": existing("arn:aws:x")}},
			group("default", "web", inputs{"load_balancers": []string{"own", "own"}})), "groups: load_balancers: want each name once"},
		{"a tenant that config_json declares", with(group("acme", "web", nil), inputs{"config_json": `{"tenants": {"acme": {}}}`}), ""},
		{"a group with a capital", group("default", "Web", nil), "groups: want names of lowercase letters, digits and single inner hyphens"},
		{"a group of 33 letters", group("default", long[:33], nil), "at most 32: " + long[:33]},
		{"a size below 0", group("default", "web", inputs{"size": -1}), "groups: size: want a whole number from 0 to 10000, not -1 (web)"},
		{"a size that is too large", group("default", "web", inputs{"size": 10001}), "not 10001 (web)"},
		{"half an instance", group("default", "web", inputs{"size": 1.5}), "not 1.5 (web)"},
		{"the largest size", group("default", "web", inputs{"size": 10000}), ""},
		{"no drain", drain("0"), ""},
		{"a drain without a unit", drain("90"), "groups: drain_timeout: want a duration from 0s to 24h, such as 90s or 1h30m, not 90 (web)"},
		{"a drain with days behind", drain("1h1d"), "not 1h1d (web)"},
		{"a drain of more than a day", drain("1d1ms"), "not 1d1ms (web)"},
		{"a drain of a day", drain("23h59m60s"), ""},
		{"no drain", drain("0s"), ""},
		{"a template with a space", web("my web", nil), "templates: want names of letters, digits and inner dots"},
		{"a template of 65 letters", web(long, nil), "at most 64: " + long},
		{"a template of 64 characters", web(long[:62]+".y", nil), ""},
		{"a template's size that is too large", web("web", inputs{"size": 10001}), "templates: size: want a whole number from 0 to 10000"},
		{"a pool with an underscore", pools(inputs{"my_pool": []string{"subnet-0c1b2c3d"}}), "subnet_pools: want names of lowercase letters"},
		{"a subnet in two pools", pools(inputs{"others": []string{"subnet-0b1b2c3d"}}), "subnet_pools: want each subnet once"},
		{"a subnet twice in a pool", pools(inputs{"workers": []string{"subnet-0b1b2c3d", "subnet-0b1b2c3d"}}), "want each subnet once"},
		{"a load balancer with a space", inputs{"load_balancers": inputs{"my own": existing("arn:aws:x")}}, "load_balancers: want names of"},
		{"an image with a slash", inputs{"images": inputs{"a/b": inputs{"fallback": "ami-1"}}}, "images: want names of letters"},
		{"a certificate with a slash", inputs{"certificates": inputs{"a/b": inputs{"kind": "server", "cn": "a"}}}, "certificates: want names of"},
		{"an age with days behind", inputs{"settings": inputs{"expiry": inputs{"eligible_age": "12h1d"}}}, "settings: want durations"},
	}
}

// machineRefusals are machines whose image has the wrong architecture to boot.
func machineRefusals() []refusal {
	server := func(arch, name string) inputs { return inputs{"server_arch": arch, "server_instance_type": name} }
	template := func(arch, name string) inputs {
		return inputs{
			"groups": inputs{}, "agent_packages": inputs{"arm64": pack(), "amd64": pack()},
			"templates": inputs{"web": inputs{"kind": "web", "arch": arch, "instance_type": name}},
		}
	}
	group := func(name string) inputs {
		return inputs{"groups": inputs{"default": inputs{"web": inputs{"template": "web", "instance_type": name}}}}
	}
	return []refusal{
		{"a server of amd64 for arm64", server("arm64", "t3.nano"), "server_instance_type: want one of server_arch, arm64, not t3.nano"},
		{"a server of arm64 for amd64", server("amd64", "t4g.nano"), "server_instance_type: want one of server_arch, amd64, not t4g.nano"},
		{"a template of amd64 for arm64", template("arm64", "g5.xlarge"), "templates: instance_type: want one of the template's arch"},
		{"a template of arm64 for amd64", template("amd64", "m7gd.large"), "m7gd.large for amd64 (web)"},
		{"a group of another architecture than its template", group("c7i.large"), "groups: instance_type: want one of the template's arch"},
		{"a group of its template's architecture", group("c7gn.large"), ""},
		{"types by their architecture", types(), ""},
		{"an image and userdata of one's own", inputs{
			"templates": inputs{"web": inputs{
				"kind": "web", "ami_id": "ami-0123456789abcdef0", "instance_type": "t3.small", "subnet_pool": "workers",
				"userdata": inputs{"content": "#!/bin/sh"},
			}},
			"groups": inputs{"default": inputs{"web": inputs{"template": "web", "instance_type": "c7i.large"}}},
		}, ""},
	}
}

// types are instance types, each in a template of its architecture.
func types() inputs {
	templates := inputs{}
	for arch, names := range map[string]string{
		"arm64": "m9g-flex.large a1.medium x2gd.medium im4gn.large is4gen.medium g5g.xlarge hpc7g.4xlarge r8gb.large p6e-gb200.36xlarge",
		"amd64": "g4dn.xlarge g6e.xlarge m7i-flex.large u7i-12tb.224xlarge t3a.nano c7a.large i7ie.large",
	} {
		for name := range strings.FieldsSeq(names) {
			templates[name] = inputs{"kind": "web", "arch": arch, "instance_type": name}
		}
	}
	return inputs{
		"groups": inputs{}, "agent_packages": inputs{"arm64": pack(), "amd64": pack()}, "templates": templates,
	}
}

func pack() inputs { return inputs{"url": url, "sha256": sha256} }

// existing is a load balancer with existing target groups.
func existing(arns ...string) inputs {
	return inputs{"target_group_arns": append([]string{}, arns...)}
}

// balancerRefusals are load balancers that AWS refuses, or that can't be reached.
func balancerRefusals() []refusal {
	made := inputs{"port": 443, "subnet_ids": []string{"subnet-0a1b2c3d"}, "cidrs": []string{"10.0.0.0/8"}}
	www := func(more inputs) inputs { return inputs{"load_balancers": inputs{"www": with(made, more)}} }
	closed := maps.Clone(made)
	delete(closed, "cidrs")
	return []refusal{
		{"a load balancer that can't be reached", inputs{"load_balancers": inputs{"www": closed}}, "cidrs: want at least one range beside port"},
		{"a range that is a name", www(inputs{"cidrs": []string{"all"}}), "load_balancers: cidrs: want ranges by their first address"},
		{"a range by another address of it", www(inputs{"cidrs": []string{"10.1.0.0/8"}}), "2001:db8::/32, not 10.1.0.0/8"},
		{"ranges of both families", www(inputs{"cidrs": []string{"0.0.0.0/0", "::/0"}}), ""},
		{"a path without a slash", www(inputs{"health_path": "healthz"}), "health_path: want one that begins with /"},
		{"a path", www(inputs{"health_path": "/healthz"}), ""},
		{"a drain of more than an hour", www(inputs{"drain_seconds": 3601}), "drain_seconds: want a whole number from 0 to 3600, not 3601 (www)"},
		{"a drain below 0", www(inputs{"drain_seconds": -1}), "not -1 (www)"},
		{"UDP without the clients' addresses",
			www(inputs{"protocol": "UDP", "health_port": 80, "preserve_client_ip": false}), "want true for UDP"},
		{"TCP without the clients' addresses", www(inputs{"preserve_client_ip": false}), ""},
		{"no target group", inputs{"load_balancers": inputs{"own": existing()}}, "load_balancers: target_group_arns: want at least one"},
		{"a target group by its name", inputs{"load_balancers": inputs{"own": existing("own")}}, "and ARNs"},
	}
}
