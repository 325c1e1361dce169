//go:build integration

package terraform_test

import "maps"

const region = "eu-central-1"

const (
	keyARN = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:nstance/example/encryption-key-AbCdEf"
	kmsARN = "arn:aws:kms:eu-central-1:111122223333:key/0f1e2d3c"
	sha256 = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	url    = "https://example.com/nstance_0.1.0_linux_arm64.tar.gz"
	digest = "@sha256:" + sha256
)

// inputs are the inputs of one module.
type inputs = map[string]any

// fixture is a configuration that calls modules with some inputs.
type fixture struct {
	modules map[string]inputs
	region  string // empty: region
}

// fixtures are the configurations by name. A module's inputs here are what the other modules would
// pass, so that each is tested alone.
func fixtures() map[string]fixture {
	own := inputs{"cluster_id": "example", "create_encryption_key": false, "encryption_key_arn": keyARN}
	account := inputs{"cluster_id": "example", "bucket": "nstance-example", "encryption_key_arn": keyARN}
	return map[string]fixture{
		"cluster": {modules: map[string]inputs{"cluster": {"cluster_id": "example"}}},
		"own key": {modules: map[string]inputs{"cluster": with(own, inputs{"kms_key_arn": kmsARN, "deletion_protection": false})}},
		"account": {modules: map[string]inputs{"account": account}},
		"more rights": {modules: map[string]inputs{"account": with(account, inputs{
			"kms_key_arn": kmsARN, "allow_snapshots": true, "secrets_region": "eu-west-1",
			"secrets_manager_prefix": "nstance/example/", "parameter_store_prefix": "nstance/example/",
		})}},
		"new VPC":   {modules: map[string]inputs{"network": newVPC()}},
		"one NAT":   {modules: map[string]inputs{"network": with(newVPC(), inputs{"nat": "single"})}},
		"old VPC":   {modules: map[string]inputs{"network": oldVPC()}},
		"public":    {modules: map[string]inputs{"network": publicVPC()}},
		"ranges":    {modules: map[string]inputs{"network": moreRanges()}},
		"China":     isolatedIn("cn-north-1", nil),
		"GovCloud":  isolatedIn("us-gov-west-1", nil),
		"sovereign": isolatedIn("eusc-de-east-1", inputs{"interface_endpoints": []string{"ec2", "ecr.api"}}),
		"shard":     shard(nil),
		"given":     shard(inputs{"leader_ipv4_address": "10.0.0.10"}),
		"dual":      shard(inputs{"enable_leader_ipv6": true}),
		"IPv6":      shard(inputs{"enable_leader_ipv4": false, "enable_leader_ipv6": true}),
		"standbys": shard(inputs{
			"standbys": 2, "leader_ipv4_address": "10.0.0.10", "enable_leader_ipv6": true, "leader_ipv6_address": "2001:db8::10",
		}),
		"images":    shard(with(images(), inputs{"agent_packages": inputs{}, "agent_image": "ghcr.io/example/nstance-agent" + digest})),
		"balancers": shard(balancers()),
		"rich":      shard(rich()),
	}
}

// isolatedIn is a network without internet access in another region.
func isolatedIn(region string, more inputs) fixture {
	few := inputs{
		"name": "example", "cluster_id": "example", "vpc_cidr": "10.0.0.0/16",
		"subnets": inputs{"servers": inputs{"role": "isolated", "zone": region + "a", "cidr": "10.0.0.0/24"}},
	}
	return fixture{modules: map[string]inputs{"network": with(few, more)}, region: region}
}

// with returns inputs, overridden by others.
func with(some, others inputs) inputs {
	out := maps.Clone(some)
	maps.Copy(out, others)
	return out
}

func subnet(role, zone, cidr string, ipv6 any, pool any) inputs {
	return inputs{"role": role, "zone": region + zone, "cidr": cidr, "ipv6_number": ipv6, "pool": pool}
}

func newVPC() inputs {
	return inputs{
		"name": "example", "cluster_id": "example", "nat": "per-zone", "vpc_cidr": "10.0.0.0/16", "enable_ipv6": true,
		"subnets": inputs{
			"public-a":   subnet("public", "a", "10.0.0.0/24", 0, nil),
			"public-b":   subnet("public", "b", "10.0.1.0/24", 1, nil),
			"private-a":  subnet("private", "a", "10.0.16.0/20", 16, "workers"),
			"private-b":  subnet("private", "b", "10.0.32.0/20", nil, "workers"),
			"isolated-a": subnet("isolated", "a", "10.0.48.0/20", nil, nil),
			"isolated-c": subnet("isolated", "a", "10.0.64.0/20", nil, nil),
		},
	}
}

func publicVPC() inputs {
	return inputs{
		"name": "example", "cluster_id": "example", "vpc_cidr": "10.0.0.0/16",
		"subnets": inputs{"servers": subnet("public", "a", "10.0.0.0/24", nil, nil)},
	}
}

func moreRanges() inputs {
	return inputs{
		"name": "example", "cluster_id": "example", "vpc_cidr": "10.0.0.0/16", "vpc_secondary_cidrs": []string{"100.64.0.0/16"},
		"subnets": inputs{"workers": subnet("isolated", "a", "100.64.0.0/20", nil, nil)},
	}
}

func oldVPC() inputs {
	return inputs{
		"name": "example", "cluster_id": "example", "vpc_id": "vpc-0a1b2c3d", "internet_gateway_id": "igw-0a1b2c3d",
		"subnets": inputs{
			"servers": inputs{"role": "public", "id": "subnet-0a1b2c3b"},
			"workers": subnet("public", "b", "10.0.1.0/24", nil, "workers"),
		},
	}
}

// shard returns a shard with the required inputs, and others.
func shard(more inputs) fixture {
	few := inputs{
		"cluster_id": "example", "bucket": "nstance-example", "encryption_key_arn": keyARN,
		"server_profile_name": "nstance-example-server", "agent_profile_name": "nstance-example-agent",
		"shard": "eu-central-1a",
		"subnet": inputs{
			"id": "subnet-0a1b2c3d", "vpc_id": "vpc-0a1b2c3d", "zone": region + "a", "cidr": "10.0.0.0/24",
			"ipv6_cidr": "2001:db8::/64",
		},
		"server_package": inputs{"url": url, "sha256": sha256},
		"agent_packages": inputs{"arm64": inputs{"url": url, "sha256": sha256}},
		"subnet_pools":   inputs{"workers": []string{"subnet-0b1b2c3d"}},
		"templates":      inputs{"web": inputs{"kind": "web", "instance_type": "t4g.small", "subnet_pool": "workers"}},
		"groups":         inputs{"default": inputs{"web": inputs{"template": "web", "size": 3}}},
	}
	return fixture{modules: map[string]inputs{"shard": with(few, more)}}
}

func images() inputs {
	return inputs{
		"server_package": nil, "server_image": "ghcr.io/example/nstance-server" + digest, "asg_image": "ghcr.io/example/nstance-asg" + digest,
	}
}

func balancers() inputs {
	return inputs{
		"load_balancers": inputs{
			"www": inputs{"port": 443, "target_port": 8443, "subnet_ids": []string{"subnet-0a1b2c3d"}, "cidrs": []string{"0.0.0.0/0", "::/0"}},
			"own": inputs{"target_group_arns": []string{
				"arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/own/0123456789abcdef",
			}},
		},
		"groups": inputs{"default": inputs{"web": inputs{"template": "web", "size": 3, "load_balancers": []string{"own", "www"}}}},
	}
}

// rich uses most inputs that affect the config.
func rich() inputs {
	return inputs{
		"tenants": []string{"acme"}, "vars": inputs{"colour": "blue"}, "vars_tenants": []string{"default"},
		"subnet_pool_tenants": inputs{"workers": []string{"default", "acme"}},
		"operator_cidrs":      []string{"10.0.0.0/8", "2001:db8::/32"}, "operator_security_group_ids": inputs{"k8s": "sg-0a1b2c3d"},
		"images": inputs{"debian": inputs{
			"owners": []string{"136693071363"}, "filters": []inputs{{"name": "name", "values": []string{"debian-13-arm64-*"}}},
		}},
		"certificates": inputs{"web": inputs{"kind": "server", "cn": "{{ .Instance.Hostname }}", "dns": []string{"web.example.com"}}},
		"templates": inputs{
			"web": inputs{
				"kind": "web", "instance_type": "t4g.small", "subnet_pool": "workers", "image": "debian", "kms_key_arn": kmsARN,
				"max_surge": "20%", "require_files": false, "vars": inputs{"size": "big"}, "size": 2,
				"files": inputs{
					"tls.crt":   inputs{"kind": "certificate", "template": "web", "key": inputs{"name": "tls.key"}},
					"app.json":  inputs{"kind": "json", "content_json": `{"a": [1, "b"]}`},
					"motd.conf": inputs{"kind": "string", "content": "hello"},
					"agent.env": inputs{"kind": "env", "values": inputs{"A": "b"}},
				},
			},
			"spot": inputs{
				"kind": "job", "tenants": []string{"acme"}, "arch": "amd64",
				"instance_type": "c7i.xlarge", "subnet_pool": "workers", "spot": true, "ami_id": "ami-0a1b2c3d",
				"args_json": `{"KeyName": "example"}`, "userdata": inputs{"content": "#!/bin/sh\ntrue\n"},
			},
		},
		"groups": inputs{
			"default": inputs{"web": inputs{"template": "web", "max_surge": "1", "drain_timeout": "2m"}},
			"acme":    inputs{"jobs": inputs{"template": "spot", "size": 0, "args_json": `{"KeyName": "other"}`}},
		},
		"settings": inputs{
			"create_rate": inputs{"per_second": 1}, "expiry": inputs{"eligible_age": "30d"}, "health": inputs{"report_interval": "20s"},
			"request_timeout": "20s",
		},
		"config_json": `{"server": {"rotation": {"max_surge": "2"}}}`,
	}
}
