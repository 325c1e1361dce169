package docker_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

func TestBadArgs(t *testing.T) {
	p, w := openFake(t, nil)
	for want, args := range map[string]map[string]any{
		"args.privileged: no such field (have: cpus, env, extra_hosts, image, labels, log_driver, log_options, memory, network, node,": {
			"privileged": true,
		},
		"args.runtime: no such field":                                         {"runtime": "runc"},
		"args.binds: no such field":                                           {"binds": []any{"/:/host"}},
		`args.log_driver: "syslog" is not valid: want json-file, local`:       {"log_driver": "syslog"},
		"args.log_options.syslog-address: unknown: want max-size":             {"log_options": map[string]any{"syslog-address": "unix:///x"}},
		"args.log_options: holds a number: want a string":                     {"log_options": map[string]any{"max-size": 1}},
		"args.node: options.node is not configured: want false":               {"node": true},
		`args.network: "host" is not valid: remove it, or use a network of`:   {"network": "host"},
		`args.network: "bridge" is not valid: remove it, or use a network of`: {"network": "bridge"},
		`args.image: "other:1" is not valid: want an image of`:                {"image": "other:1"},
		`args.image: ":1" is not valid: it has no repository`:                 {"image": ":1"},
		`args.env: "LD_PRELOAD" is not a variable that args may set`:          {"env": map[string]any{"LD_PRELOAD": "/x.so"}},
		`args.env: "NSTANCE_PROVIDER" is not a variable that args may`:        {"env": map[string]any{"NSTANCE_PROVIDER": "aws"}},
		`args.network: "container:db" is not valid`:                           {"network": "container:db"},
		`args.memory: "lots" is not valid: want bytes such as 512m or 2g`:     {"memory": "lots"},
		`args.memory: "m"`:              {"memory": "m"},
		`args.memory: "-1"`:             {"memory": "-1"},
		`args.memory: "9999999999999g"`: {"memory": "9999999999999g"},
		"args.cpus: -1 is not valid: want a number such as 1.5":             {"cpus": -1},
		"args.cpus: got a string: want a number":                            {"cpus": "2"},
		"args.pids_limit: -1 is not valid":                                  {"pids_limit": -1},
		"args.labels.nstance:shard: labels that begin with nstance: are":    {"labels": map[string]any{"nstance:shard": "x"}},
		"args.env.NSTANCE_KEYS_DIR: the provider sets this variable itself": {"env": map[string]any{"NSTANCE_KEYS_DIR": "/x"}},
		"args.extra_hosts: got a string: want a list":                       {"extra_hosts": "a:b"},
		`args.extra_hosts[1]: "nowhere" is not valid: want name:address`:    {"extra_hosts": []any{"a:b", "nowhere"}},
		`want bytes such as 512m or 2g; args.cpus: -1 is not valid`:         {"memory": "0", "cpus": -1},
	} {
		_, err := p.Create(t.Context(), newSpec(t, testScope(), args))
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	if len(w.calls) != 0 {
		t.Errorf("calls %v, want none", w.calls)
	}
}

// TestArgsAllowedByOptions: args can use images, networks and variables that the options allow,
// and no others.
func TestArgsAllowedByOptions(t *testing.T) {
	cfg, err := docker.Default(testScope(), slog.New(slog.DiscardHandler)).WithOptions(map[string]any{
		"image": "r.example/agent:v2", "images": []any{"r.example/team/*", "tool"}, "node": map[string]any{"privileged": true},
		"network": "agents", "networks": []any{"web", "host"}, "args_env": []any{"COLOUR", "APP_*"},
	})
	if err == nil {
		err = cfg.CheckOptions()
	}
	if err != nil {
		t.Fatal(err)
	}
	withoutOptions := cfg
	withoutOptions.Node = nil
	withoutOptions.Images, withoutOptions.Networks, withoutOptions.ArgsEnv = nil, nil, nil
	for _, c := range []struct {
		field         string
		value         any
		with, without bool // valid with these options, and without
	}{
		{"image", "r.example/agent:v1", true, true},
		{"image", "r.example/agent@sha256:" + strings.Repeat("ab", 32), true, true},
		{"image", "r.example/agent-debug:v1", false, false},
		{"image", "r.example/team/web:v1", true, false},
		{"image", "r.example/team/web/x:v1", false, false},
		{"image", "evil.example/team/web:v1", false, false},
		{"image", "tool:dev", true, false},
		{"image", "docker.io/library/tool", false, false},
		{"network", "agents", true, true},
		{"network", "web", true, false},
		{"network", "host", true, false},
		{"network", "none", false, false},
		{"network", "container:db", false, false},
		{"env", map[string]any{"NSTANCE_DEBUG": "1"}, true, true},
		{"env", map[string]any{"COLOUR": "red", "APP_X": "1"}, true, false},
		{"env", map[string]any{"COLOURS": "red"}, false, false},
		{"env", map[string]any{"PATH": "/x"}, false, false},
		{"env", map[string]any{"AWS_PROFILE": "x"}, false, false},
	} {
		args := provider.Spec{Args: map[string]any{c.field: c.value}}
		for config, want := range map[*docker.Config]bool{&cfg: c.with, &withoutOptions: c.without} {
			err := config.CheckArgs(args)
			if (err == nil) != want || err != nil && (!errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "args."+c.field)) {
				t.Errorf("%s %v, images %v: %v, want valid: %v", c.field, c.value, config.Images, err, want)
			}
		}
	}
}

func TestConfig(t *testing.T) {
	base := docker.Default(testScope(), slog.New(slog.DiscardHandler))
	cfg, err := base.WithOptions(map[string]any{
		"host": "tcp://h:1", "image": "i", "network": "n", "env": map[string]any{"A": "1"},
	})
	if err != nil || cfg.Host != "tcp://h:1" || cfg.Image != "i" || cfg.Network != "n" || cfg.Env["A"] != "1" ||
		cfg.Validate() != nil {
		t.Errorf("with all options: %+v, %v, %v", cfg, err, cfg.Validate())
	}
	if p, err := docker.New(cfg); err != nil {
		t.Error(err)
	} else if _, ok := provider.LeaderNetworkOf(p); ok {
		t.Error("a leader network without a configured address")
	}
	for want, options := range map[string]map[string]any{
		"options.socket: no such field": {"socket": "x"},
		"options.leader: no such field": {"leader": map[string]any{"ipv4": "x"}},
		"options.image: required":       {},
		"options.node.tmpfs[0]: \"/opt/nstance-agent/identity\" is not valid": {
			"image": "i", "node": map[string]any{"tmpfs": []any{"/opt/nstance-agent/identity"}}},
		"options.node.binds[0]: \"/opt\" is not valid":    {"image": "i", "node": map[string]any{"binds": []any{"/srv:/opt"}}},
		"options.node.volumes[0]: \"/a:rw\" is not valid": {"image": "i", "node": map[string]any{"volumes": []any{"/a:rw"}}},
		"options.images[1]: \"a:b\" is not valid":         {"image": "i", "images": []any{"a", "a:b"}},
		"options.networks[0]: \"\" is not valid":          {"image": "i", "networks": []any{""}},
		"options.args_env[0]: \"*\" is not valid":         {"image": "i", "args_env": []any{"*"}},
		"options.args_env[0]: the provider sets":          {"image": "i", "args_env": []any{"NSTANCE_KEYS_DIR"}},
		"options.env.NSTANCE_INSTANCE_ID":                 {"image": "i", "env": map[string]any{"NSTANCE_INSTANCE_ID": "x"}},
		"options.host: unable to parse docker host `":     {"image": "i", "host": "nowhere"},
	} {
		cfg, err := base.WithOptions(options)
		if err == nil {
			_, err = docker.New(cfg)
		}
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want ErrInvalid with %q", options, err, want)
		}
	}
}

// FuzzArgs: args are either refused with the names of the fields, or sent.
func FuzzArgs(f *testing.F) {
	f.Add([]byte(`{"memory":"512m","cpus":1.5,"labels":{"a":"b"}}`))
	f.Add([]byte(`{"memory":"k"}`))
	f.Add([]byte(`{"memory":"9223372036854775807g","cpus":1e300}`))
	f.Add([]byte(`{"env":{"":""},"extra_hosts":[""],"pids_limit":-5}`))
	p, _ := openFake(f, map[string]response{"POST create": {404, "No such image: x"}})
	f.Fuzz(func(t *testing.T, data []byte) {
		var args map[string]any
		if json.Unmarshal(data, &args) != nil {
			return
		}
		if _, err := p.Create(t.Context(), newSpec(t, testScope(), args)); !errors.Is(err, provider.ErrInvalid) {
			t.Errorf("%s: %v", data, err)
		}
	})
}

// FuzzOptions: options are either refused with their names, or args can be checked against
// them.
func FuzzOptions(f *testing.F) {
	f.Add([]byte(`{"image":"ghcr.io/a/b:v1","pull":"always","verify_key":"/k"}`))
	f.Add([]byte(`{"image":"a","node":{"image":"n","volumes":["/a"],"tmpfs":["/b"],"binds":["/c:/d:ro"]}}`))
	f.Add([]byte(`{"image":"a@sha256:00","pull":"never","node":{"binds":[":"]}}`))
	base := docker.Default(testScope(), slog.New(slog.DiscardHandler))
	f.Fuzz(func(t *testing.T, data []byte) {
		var values map[string]any
		if json.Unmarshal(data, &values) != nil {
			return
		}
		cfg, err := base.WithOptions(values)
		if err == nil {
			err = cfg.CheckOptions()
		}
		if err != nil && !errors.Is(err, provider.ErrInvalid) {
			t.Errorf("%s: %v", data, err)
		}
		if err != nil {
			return
		}
		args := map[string]any{"node": true, "network": cfg.Network}
		if cfg.Node != nil && cfg.Node.Image == "" {
			args["image"] = cfg.Image
		}
		err = cfg.CheckArgs(provider.Spec{Args: args})
		if (err == nil) != (cfg.Node != nil) {
			t.Errorf("%s: args with the node of the options: %v", data, err)
		}
	})
}
