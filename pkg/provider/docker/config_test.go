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
	p, w := openWire(t, nil)
	for want, args := range map[string]map[string]any{
		"args.privileged: no such field (have: cpus, env, extra_hosts, image, labels, log_driver, log_options, memory, network, node,": {
			"privileged": true,
		},
		"args.runtime: no such field":                                     {"runtime": "runc"},
		"args.binds: no such field":                                       {"binds": []any{"/:/host"}},
		`args.log_driver: "syslog" is not valid: want json-file, local`:   {"log_driver": "syslog"},
		"args.log_options.syslog-address: unknown: want max-size":         {"log_options": map[string]any{"syslog-address": "unix:///x"}},
		"args.log_options: holds a number: want a string":                 {"log_options": map[string]any{"max-size": 1}},
		"args.node: the provider's options have no node: want false":      {"node": true},
		`args.network: "host" is not valid: want a network of`:            {"network": "host"},
		`args.network: "container:db" is not valid`:                       {"network": "container:db"},
		`args.memory: "lots" is not valid: want bytes such as 512m or 2g`: {"memory": "lots"},
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
		_, err := p.Create(t.Context(), newSpec(t, wireScope(), args))
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	if len(w.calls) != 0 {
		t.Errorf("the engine was asked: %v", w.calls)
	}
}

func TestConfig(t *testing.T) {
	base := docker.Default(wireScope(), slog.New(slog.DiscardHandler))
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
		t.Error("a leader network although there is no address to move")
	}
	for want, options := range map[string]map[string]any{
		"options.socket: no such field": {"socket": "x"},
		"options.leader: no such field": {"leader": map[string]any{"ipv4": "x"}},
		"options.image: required":       {},
		"options.node.tmpfs[0]: \"/opt/nstance-agent/identity\" is not valid": {
			"image": "i", "node": map[string]any{"tmpfs": []any{"/opt/nstance-agent/identity"}}},
		"options.node.binds[0]: \"/opt\" is not valid":    {"image": "i", "node": map[string]any{"binds": []any{"/srv:/opt"}}},
		"options.node.volumes[0]: \"/a:rw\" is not valid": {"image": "i", "node": map[string]any{"volumes": []any{"/a:rw"}}},
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

// FuzzArgs: whatever a config asks for is refused by name, or sent.
func FuzzArgs(f *testing.F) {
	f.Add([]byte(`{"memory":"512m","cpus":1.5,"labels":{"a":"b"}}`))
	f.Add([]byte(`{"memory":"k"}`))
	f.Add([]byte(`{"memory":"9223372036854775807g","cpus":1e300}`))
	f.Add([]byte(`{"env":{"":""},"extra_hosts":[""],"pids_limit":-5}`))
	p, _ := openWire(f, map[string]answer{"POST create": {404, "No such image: x"}})
	f.Fuzz(func(t *testing.T, data []byte) {
		var args map[string]any
		if json.Unmarshal(data, &args) != nil {
			return
		}
		if _, err := p.Create(t.Context(), newSpec(t, wireScope(), args)); !errors.Is(err, provider.ErrInvalid) {
			t.Errorf("%s: %v", data, err)
		}
	})
}

// FuzzOptions: options from a config are refused by name, or are such that args can be
// checked against them.
func FuzzOptions(f *testing.F) {
	f.Add([]byte(`{"image":"ghcr.io/a/b:v1","pull":"always","verify_key":"/k"}`))
	f.Add([]byte(`{"image":"a","node":{"image":"n","volumes":["/a"],"tmpfs":["/b"],"binds":["/c:/d:ro"]}}`))
	f.Add([]byte(`{"image":"a@sha256:00","pull":"never","node":{"binds":[":"]}}`))
	base := docker.Default(wireScope(), slog.New(slog.DiscardHandler))
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
			t.Errorf("%s: a node of the same image and network: %v", data, err)
		}
	})
}
