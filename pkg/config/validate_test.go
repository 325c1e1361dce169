package config_test

import (
	"strings"
	"testing"
)

// Each row replaces a part of the scene; an empty want means that the result is valid. The
// golden file has combined mistakes.
func TestValidate(t *testing.T) {
	cluster := func(secrets string) [2]string {
		return [2]string{`"secrets": { "encryption_key": { "provider": "env", "source": "KEY" } }`, `"secrets": ` + secrets}
	}
	server := func(field string) [2]string {
		return [2]string{`"provider": { "kind": "fake" },`, `"provider": { "kind": "fake" }, ` + field + `,`}
	}
	aws := func(rest string) [2]string {
		return [2]string{`"provider": { "kind": "fake" },`, `"provider": { "kind": "aws", "region": "r", "zone": "z" }, ` + rest + `,`}
	}
	section := func(text string) [2]string {
		return [2]string{`"tenants": { "prod": {} },`, `"tenants": { "prod": {} }, ` + text + `,`}
	}
	cert := func(fields string) [2]string {
		return section(`"certificates": { "x": { "kind": "peer", "cn": "x", ` + fields + ` } }`)
	}
	file := func(name, fields string) [2]string {
		return [2]string{`"a.json": { "kind": "json", "content": { "x": [1] } }`, `"` + name + `": { ` + fields + ` }`}
	}
	const knd, list = `"templates": {
    "knd": { "kind": "knd", "arch": "amd64", `, `"removed": ["default/bare"], `
	const key = `"encryption_key": { "provider": "env", "source": "KEY" }`
	for _, c := range []struct {
		edit [2]string
		want string
	}{
		{cluster(`{}`), "cluster.secrets.encryption_key.provider: required: want env, file, aws-secrets-manager or aws-parameter-store"},
		{cluster(`{ "provider": "vault" }`),
			`cluster.secrets.provider: "vault" is not valid: want object-storage, aws-secrets-manager or aws-parameter-store`},
		{cluster(`{ "provider": "aws-secrets-manager", "prefix": "nstance/" }`), ""},
		{cluster(`{ "provider": "aws-parameter-store", "prefix": "" }`),
			`cluster.secrets.prefix: "" is not valid: want a path that ends in /, such as nstance/example/`},
		{cluster(`{ "provider": "aws-secrets-manager", "prefix": "a b/" }`), `cluster.secrets.prefix: "a b/" is not valid`},
		{cluster(`{ "provider": "aws-parameter-store", "prefix": "/nstance/" }`),
			`cluster.secrets.prefix: "/nstance/" begins with a slash: want it without, such as nstance/example/`},
		{cluster(`{ "provider": "aws-secrets-manager", "prefix": "/nstance/" }`), `cluster.secrets.prefix: "/nstance/" begins with a slash`},
		{cluster(`{ "provider": "aws-parameter-store", "prefix": "AWS-a/b/" }`),
			`cluster.secrets.prefix: "AWS-a/b/" is reserved by AWS: want one that begins with neither aws nor ssm`},
		{cluster(`{ "provider": "aws-parameter-store", "prefix": "ssm/" }`), `cluster.secrets.prefix: "ssm/" is reserved`},
		{cluster(`{ "provider": "aws-parameter-store", "prefix": "nstance/aws/" }`), ""},
		{cluster(`{ "provider": "aws-parameter-store" }`), ""},
		{cluster(`{ "provider": "aws-parameter-store", "region": "eu-central-1" }`), ""},
		{cluster(`{ "provider": "aws-secrets-manager", "region": "EU Central" }`),
			`cluster.secrets.region: "EU Central" is not valid: want an AWS region, such as eu-central-1`},
		{cluster(`{ "region": "eu-central-1", ` + key + ` }`),
			`cluster.secrets.region: the secrets of "object-storage" are in the bucket: remove it`},
		{cluster(`{ "provider": "aws-parameter-store", ` + key + ` }`),
			`cluster.secrets.encryption_key: only the provider "object-storage" seals its secrets: remove it`},
		{cluster(`{ "provider": "aws-parameter-store", "old_encryption_keys": [{ "provider": "env", "source": "A" }] }`),
			`cluster.secrets.old_encryption_keys: only`},
		{cluster(`{ "prefix": "secrets/of/ours/", ` + key + ` }`), ""},
		{cluster(`{ "prefix": "/abs/", ` + key + ` }`), `cluster.secrets.prefix: "/abs/" is not valid: want a relative path that ends in /`},
		{cluster(`{ "prefix": "cluster/secret", ` + key + ` }`), `cluster.secrets.prefix: "cluster/secret" is not valid`},
		{cluster(`{ "prefix": "a/../files/", ` + key + ` }`), `cluster.secrets.prefix: "a/../files/" is not valid`},
		{cluster(`{ "prefix": "cluster/", ` + key + ` }`), `cluster.secrets.prefix: "cluster/" holds other objects`},
		{cluster(`{ "prefix": "cluster/operator/", ` + key + ` }`), `cluster.secrets.prefix: "cluster/operator/" holds other objects`},
		{cluster(`{ "encryption_key": { "provider": "file", "source": "" } }`), "cluster.secrets.encryption_key.source: required"},
		{cluster(`{ "encryption_key": { "provider": "aws-secrets-manager", "source": "nstance-key" } }`), ""},
		{cluster(`{ ` + key + `, "old_encryption_keys": [{ "provider": "env", "source": "A-B" }] }`),
			`cluster.secrets.old_encryption_keys[0].source: "A-B" can't be`},
		{[2]string{`"cluster": { "id": "c",`, `"cluster": {`}, "cluster.id: required: want an id of lowercase letters"},

		{[2]string{`{ "kind": "fake" }`, `{}`}, "server.provider.kind: required: want aws, docker, process or fake"},
		{[2]string{`{ "kind": "fake" }`, `{ "kind": "process", "options": { "a": [1, null] } }`}, ""},
		{server(`"bind": { "metrics_addr": "127.0.0.1:9464", "health_addr": ":0", "agent_addr": "[::]:0" }`), ""},
		{server(`"bind": { "metrics_addr": "127.0.0.1:8994" }`),
			"server.bind.metrics_addr: port 8994 is taken by agent_addr: want distinct ports"},
		{server(`"bind": { "metrics_addr": "127.0.0.1:08994" }`), "server.bind.metrics_addr: port 8994 is taken by agent_addr"},
		{server(`"bind": { "health_addr": "" }`), `server.bind.health_addr: "" is not an address: want host:port`},
		{server(`"bind": { "health_addr": "::1:80" }`), `server.bind.health_addr: "::1:80" is not an address`},
		{server(`"bind": { "health_addr": "0.0.0.0:http" }`), `server.bind.health_addr: "http" is not a port: want 0 to 65535`},
		{server(`"advertise": { "agent_addr": "" }`), `server.advertise.agent_addr: "" is not an address`},
		{server(`"advertise": { "agent_addr": "a.example:443" }`), ""},
		{server(`"leader_network": { "ipv4": "10.0.0.9", "ipv6": "fd00::9" }`), ""},
		{server(`"leader_network": { "ipv4": "0.0.0.0" }`), `server.leader_network.ipv4: "0.0.0.0" is not an IPv4 address of a host`},
		{server(`"leader_network": { "ipv6": "fe80::1%eth0" }`), `server.leader_network.ipv6: "fe80::1%eth0" is not an IPv6`},
		{server(`"leader_network": { "interface_id": "eni-1" }`), "server.leader_network.ipv4: required with interface_id"},
		{server(`"leader_election": { "renew_interval": "50ms" }`), "server.leader_election.renew_interval: 50ms is outside the limits"},
		{server(`"leader_election": { "lease_duration": "2s", "renew_interval": "900ms", "fence_window": "499ms" }`), ""},
		{server(`"leader_election": { "lease_duration": "2s", "renew_interval": "900ms", "fence_window": "500ms" }`),
			"server.leader_election.fence_window: 500ms is outside the limits: " +
				"want more than 0s, and less than a quarter of lease_duration (2s)"},
		{server(`"leader_election": { "lease_duration": "11m" }`),
			"server.leader_election.lease_duration: 11m is outside the limits: want 1s to 10m"},
		{server(`"leader_election": { "give_up": "1s" }`), ""},
		{server(`"leader_election": { "give_up": "999ms" }`), "server.leader_election.give_up: 999ms is outside the limits: want 1s to 1d"},
		{[2]string{`"default_drain_timeout": "7m"`, `"default_drain_timeout": "24h"`}, ""},
		{[2]string{`"default_drain_timeout": "7m"`, `"default_drain_timeout": "-1s"`},
			"server.default_drain_timeout: -1s is outside the limits: want 0s to 1d"},
		{server(`"expiry": { "eligible_age": "30d", "forced_age": "30d" }`), "server.expiry.eligible_age: 30d is not below forced_age (30d)"},
		{server(`"expiry": { "ondemand_age": "-1h" }`), "server.expiry.ondemand_age: -1h is outside the limits: want 1s to 3650d"},
		{server(`"create_rate": { "per_second": 1e999 }`), "server.create_rate.per_second: 1e999 is outside the range of numbers"},
		{server(`"create_rate": { "per_second": "10" }`), `server.create_rate.per_second: got the string "10": want a number`},
		{[2]string{`"dynamic_subnet_pools": ["workers"]`, `"dynamic_subnet_pools": ["workers", "workers"]`},
			`server.dynamic_subnet_pools[1]: "workers" is listed already`},
		{[2]string{`"workers": ["a", "b"]`, `"workers": ["a", ""]`}, "server.subnet_pools.workers[1]: empty: want one of the provider's subnets"},
		{[2]string{`"workers": ["a", "b"]`, `"workers": "a"`}, `server.subnet_pools.workers: got the string "a": want an array`},
		{aws(`"leader_network": { "ipv4": "10.0.0.9" }`), "server.leader_network.interface_id: required"},
		{[2]string{`{ "kind": "fake" }`, `{ "kind": "aws" }`}, "server.provider.region: required"},

		{section(`"removed": ["default/gone", "prod/web", "other/web"]`), ""},
		{section(`"removed": ["default/web"]`), "removed[0]: default/web keeps machines: remove it from groups or set its size to 0"},
		{section(`"removed": ["prod/web", "default/bare"]`), "removed[1]: default/bare keeps machines"},
		{[2]string{knd + `"size": 4`, list + knd + `"size": 0`}, ""},
		{[2]string{knd + `"size": 4,`, list + knd}, "removed[0]: default/bare keeps machines"}, // the default size
		{section(`"removed": ["web"]`), `removed[0]: "web" is not a group: want tenant/group`},
		{section(`"removed": [""]`), "removed[0]: empty: want a group, as tenant/group"},
		{section(`"removed": ["a/b", "a/b"]`), `removed[1]: "a/b" is listed already`},
		{section(`"removed": "a/b"`), "removed: "},
		{section(`"images": { "a b": { "provider": "aws", "fallback": "x" } }`),
			`images["a b"]: "a b" is not a valid name: want letters, digits`},
		{section(`"images": { "a": { "provider": "aws", "filters": [{ "name": "", "values": [] }] } }`), "images.a.filters[0].name: required"},
		{cert(`"ttl": 87600, "dns": ["*.example.com", "h_1"], "ip": ["fd00::1"], "organization": ["system:nodes"]`), ""},
		{cert(`"ttl": 87601`), "certificates.x.ttl: 87601 is outside the limits: want 1 to 87600 hours"},
		{cert(`"dns": ["a..b"]`), `certificates.x.dns[0]: "a..b" is not a DNS name`},
		{cert(`"dns": ["a", "a"]`), `certificates.x.dns[1]: "a" is listed already`},
		{cert(`"uri": ["nothing"]`), `certificates.x.uri[0]: "nothing" is not an absolute URI`},

		{file("a.env", `"kind": "env", "values": { "A": "{{ .Vars.x }}", "B": 1, "C": true, "D": 2.5 }`), ""},
		{file("a.env", `"kind": "env"`), `templates.knd.files["a.env"].values: required`},
		{file("a.env", `"kind": "env", "values": { "A": "{{ .X }}" }`), `templates.knd.files["a.env"].values.A: no such fact .X`},
		{file("a.conf", `"kind": "env", "values": {}`), `templates.knd.files["a.conf"]: a file of kind env has the extension .env`},
		{file("a.conf", `"kind": "storage", "source": "files/a/b.conf"`), ""},
		{file("a.conf", `"kind": "storage", "source": "files/"`),
			`templates.knd.files["a.conf"].source: "files/" is not valid: want a path below files/`},
		{file("a.conf", `"kind": "storage", "source": "files//x"`), `templates.knd.files["a.conf"].source: "files//x" is not valid`},
		{file("a.conf", `"kind": "storage", "source": "/files/x"`), `templates.knd.files["a.conf"].source: "/files/x" is not valid`},
		{file("a.conf", `"kind": "storage", "source": "cluster/secret/ca.key"`),
			`templates.knd.files["a.conf"].source: "cluster/secret/ca.key" is not valid`},
		{file("a.conf", `"kind": "secret", "source": "db-password"`), ""},
		{file("a.conf", `"kind": "secret", "source": "Registration-Nonce.key"`),
			`templates.knd.files["a.conf"].source: the secret "Registration-Nonce.key" never leaves the servers`},
		{file("a.conf", `"kind": "secret", "source": "../x"`), `templates.knd.files["a.conf"].source: "../x" is not a secret's name`},
		{file("a.conf", `"kind": "string", "content": "{{ .Nonce }}"`),
			`templates.knd.files["a.conf"].content: .Nonce can only be used in userdata`},
		{file("a.crt", `"kind": "certificate"`), `templates.knd.files["a.crt"].key: required: want {"source": "agent", "name": …}`},
		{file("a.crt", `"kind": "certificate", "key": { "source": "agent", "name": "k", "algorithm": "rsa" }`),
			`templates.knd.files["a.crt"].key.algorithm: "rsa" is not valid: want ed25519 or ecdsa-p256`},
		{file("a.crt", `"kind": "certificate", "key": { "source": "agent", "name": "K" } }, `+
			`"b.crt": { "kind": "certificate", "key": { "source": "agent", "name": "k" }`),
			`templates.knd.files["b.crt"].key.name: differs from K, which a.crt names, by case only`},
		{file("a.conf", `"kind": "string", "content": "" }, `+
			numbered(65, `"%[1]d.crt": { "kind": "certificate", "key": { "source": "agent", "name": "k%[1]d" } }, `)+
			`"z.conf": { "kind": "string", "content": ""`),
			`templates.knd.files: 65 keys: at most 64 are allowed`},
		{file("a.crt", `"kind": "certificate", "key": { "source": "agent", "name": "k", "algorithm": "ecdsa-p256" } }, `+
			`"b.crt": { "kind": "certificate", "key": { "source": "agent", "name": "k" }`),
			`templates.knd.files["b.crt"].key.algorithm: "ed25519", but a.crt wants the key k as "ecdsa-p256"`},
		{file(".crt", `"kind": "string", "content": ""`), `templates.knd.files[".crt"]: ".crt" is not a valid file name`},
		{file("a/b.crt", `"kind": "string", "content": ""`), `templates.knd.files["a/b.crt"]: "a/b.crt" is not a valid file name`},
		{file("a.crt.sh", `"kind": "string", "content": ""`), `templates.knd.files["a.crt.sh"]: "a.crt.sh" is not a valid file name`},
		{file("a.conf", `"kind": "string", "content": "" }, "A.conf": { "kind": "string", "content": ""`),
			`templates.knd.files["a.conf"]: differs from A.conf by case only`},

		{[2]string{`"kind": "knd", "arch": "amd64",`, `"arch": "amd64",`}, "templates.knd.kind: required: want exactly three lowercase letters"},
		{[2]string{`"kind": "knd", "arch"`, `"kind": "knds", "arch"`}, `templates.knd.kind: "knds" is not a valid kind`},
		{[2]string{`"arch": "amd64",`, ``}, "templates.knd.arch: required: want amd64 or arm64"},
		{[2]string{`"arch": "arm64", "subnet_pool": "control",`, `"arch": "arm64",`},
			`groups.prod.web.subnet_pool: required, since the template "knc" names none (have: control, workers)`},
		{[2]string{`"content": "own"`, `"source": "http", "content": "own"`}, `templates.knc.userdata.source: "http" is not valid: want inline`},
		{[2]string{`"t": true`, `"t": ` + strings.Repeat("[", 40) + strings.Repeat("]", 40)},
			"templates.knd.args: nested 40 deep: at most 32 are allowed"},
		{[2]string{`"g": 1,`, `"g": "{{ .Foo }}",`}, "groups.default.web.args.g: no such fact .Foo"},
		{[2]string{`"vars": { "level": "group" }`, `"vars": { "level": [1, null] }`}, "groups.default.web.vars.level[1]: null can't be rendered"},
		{[2]string{`"vars": { "level": "group" }`, `"vars": { ` + numbered(1001, `"v%d": 1,`) + ` }`},
			"groups.default.web.vars: 1001 vars: at most 1000 are allowed"},
		{[2]string{`"vars": { "level": "group" }`, `"vars": { ` + numbered(999, `"v%d": 1,`) + ` }`},
			"groups.default.web.vars: 1002 vars after merging: at most 1000 are allowed"},
		{[2]string{`"load_balancers": ["www"]`, `"load_balancers": ["www", "www"]`},
			`groups.default.web.load_balancers[1]: "www" is listed already`},
		{[2]string{`"size": 2`, `"size": 10000`}, ""},
		{[2]string{`"size": 2`, `"size": true`}, "groups.default.web.size: got true: want a whole number"},
		{[2]string{`"size": 2`, `"size": {}`}, "groups.default.web.size: got an object: want a whole number"},
		{[2]string{`"template": "knc"`, `"template": 1`}, "groups.prod.web.template: got the number 1: want a string"},
	} {
		if strings.Count(scene, c.edit[0]) < 1 {
			t.Fatalf("the scene has no %s", c.edit[0])
		}
		text := strings.Replace(scene, c.edit[0], c.edit[1], 1)
		if c.want == "" {
			checkRoundTrip(t, parse(t, text))
			continue
		}
		if got := problemsOf(t, text); !strings.Contains("\n"+got, "\n"+c.want) {
			t.Errorf("%.200s gives\n%swant\n%s", c.edit[1], got, c.want)
		}
	}
}
