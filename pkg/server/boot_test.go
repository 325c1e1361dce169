package server_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// awaitHealth waits until the health endpoint returns this code and these texts.
func (p *process) awaitHealth(code int, texts ...string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("health is %d with %q", code, texts), func() error {
		have, body := p.health()
		for _, text := range texts {
			if !strings.Contains(body, text) {
				return fmt.Errorf("it is %d: %s", have, body)
			}
		}
		if have != code {
			return fmt.Errorf("it is %d: %s", have, body)
		}
		return nil
	})
}

// TestBootWaitsForWhatCanBeMended breaks something that a boot needs, expects the part in the
// health endpoint and the reason only in the log, repairs it, and expects the same process to
// continue.
func TestBootWaitsForWhatCanBeMended(t *testing.T) {
	good := func(s *site) { s.putConfig(shardID) }
	for name, c := range map[string]struct {
		spoil func(*site)
		part  string
		logs  []string
		mend  func(*site)
	}{
		"the store is down": {
			spoil: func(s *site) { s.store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped})) },
			part:  "object storage",
			logs:  []string{"check object storage", "injected fault"},
			mend:  func(s *site) { s.store.Set(nil) },
		},
		"there is no config": {
			spoil: func(s *site) { _ = s.inner.Delete(context.Background(), "config/"+shardID+".jsonc") },
			part:  "config",
			logs:  []string{"config/" + shardID + ".jsonc"},
			mend:  good,
		},
		"the config has several problems": {
			spoil: func(s *site) {
				text := strings.ReplaceAll(s.text(), `"size": 2`, `"size": -2, "colour": "blue"`)
				s.put("config/"+shardID+".jsonc", strings.ReplaceAll(text, `"subnet_pool": "closed"`, `"subnet_pool": "clsed"`))
			},
			part: "config",
			logs: []string{"groups.default.web.size", "groups.default.web.colour", `no such subnet pool`},
			mend: good,
		},
		"the config is no JSON": {
			spoil: func(s *site) { s.put("config/"+shardID+".jsonc", `{"cluster": `) },
			part:  "config",
			logs:  []string{"config/" + shardID + ".jsonc is invalid", "parsing value"},
			mend:  good,
		},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s := newSite(t)
			c.spoil(s)
			p := s.start()
			p.awaitHealth(http.StatusServiceUnavailable, "not ready: "+c.part)
			p.awaitReason(c.logs...)
			if n := len(s.keys("cluster/")) + len(s.keys("leader/")) + len(s.keys("instance/")); n > 0 {
				t.Errorf("%d objects were written", n)
			}
			c.mend(s)
			p.awaitHealth(http.StatusOK, "leading")
			if n := p.log.count("starting"); n != 1 {
				t.Errorf("started %d times", n)
			}
		}))
	}
}

// TestBootWaitsForTheProvider: a provider that can't be opened is retried, and a server that is
// shut down before that has nothing to close.
func TestBootWaitsForTheProvider(t *testing.T) {
	simulated(t, func(t *testing.T) {
		dir := t.TempDir()
		agent := filepath.Join(dir, "agent")
		s := newSite(t, with("GROUPS", ""))
		s.replace(`"kind": "fake"`, fmt.Sprintf(`"kind": "process", "options": { "dir": %q, "agent": %q }`, dir, agent))
		real := func(cfg *server.Config) { cfg.OpenProvider = nil }
		p := s.start(real)
		p.awaitHealth(http.StatusServiceUnavailable, "not ready: provider")
		p.awaitReason("options.agent: stat " + agent)
		eventually(t, "a second attempt", func() error {
			if n := p.log.count("can't start yet"); n < 2 {
				return fmt.Errorf("%d attempts", n)
			}
			return nil
		})
		p.ends()
		p = s.start(real)
		p.awaitHealth(http.StatusServiceUnavailable, "not ready: provider")
		if err := os.WriteFile(agent, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		p.awaitHealth(http.StatusOK, "leading")
		if n := p.log.count("agents run as the server's own user"); n != 1 {
			t.Errorf("that agents are the server's own user is said %d times", n)
		}
	})
}

// awaitReason waits until the log has these texts, which the public health endpoint must not
// have.
func (p *process) awaitReason(texts ...string) {
	p.t.Helper()
	p.await("can't start yet")
	_, body := p.health()
	for _, text := range texts {
		if !strings.Contains(p.log.String(), text) {
			p.t.Errorf("the log does not say %q", text)
		}
		if strings.Contains(body, text) {
			p.t.Errorf("the health endpoint says %q", text)
		}
	}
}

// TestBootNeedsTheEncryptionKey: the key comes from the environment, so the process never
// becomes ready and writes nothing.
func TestBootNeedsTheEncryptionKey(t *testing.T) {
	for name, c := range map[string]struct{ key, says string }{
		"missing": {"", "env NSTANCE_ENCRYPTION_KEY: the environment variable is not set"},
		"short":   {"short", "holds 5 bytes, want exactly 32"},
		"long":    {encryptionKey + "x", "holds 33 bytes, want exactly 32"},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s := newSite(t)
			p := s.start(func(cfg *server.Config) {
				cfg.Getenv = env(map[string]string{"NSTANCE_ENCRYPTION_KEY": c.key})
			})
			p.awaitHealth(http.StatusServiceUnavailable, "cluster secrets")
			p.awaitReason("cluster.secrets", c.says)
			if strings.Contains(p.log.String(), encryptionKey) {
				t.Error("the log shows the key")
			}
			if keys := s.keys("cluster/"); len(keys) > 0 {
				t.Errorf("written: %v", keys)
			}
		}))
	}
	t.Run("another", simulation(func(t *testing.T) {
		s := newSite(t)
		if err := s.start().awaitLeading().shutdown(); err != nil {
			t.Fatal(err)
		}
		before := s.get("cluster/secret/ca.key")
		p := s.start(func(cfg *server.Config) {
			cfg.Getenv = env(map[string]string{"NSTANCE_ENCRYPTION_KEY": strings.ToUpper(encryptionKey)})
		})
		p.awaitHealth(http.StatusServiceUnavailable, "cluster secrets")
		p.awaitReason("decrypt")
		if s.get("cluster/secret/ca.key") != before {
			t.Error("the CA's key was replaced")
		}
	}))
}

// TestHealthMoves: before the config is read, the health address is that of the flag or the
// default; afterwards that of the config.
func TestHealthMoves(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const addr = "127.0.0.1:8990"
		s := newSite(t)
		s.config["BIND"] = strings.Replace(s.config["BIND"], `"health_addr": "127.0.0.1:0"`, `"health_addr": "`+addr+`"`, 1)
		s.putConfig(shardID)
		s.store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		p := s.start() // with the flag
		p.awaitHealth(http.StatusServiceUnavailable, "object storage")
		s.store.Set(nil)
		p.awaitLeading()
		p.awaitHealth(http.StatusOK) // a flag overrides the config
		if _, err := s.web(loopback).Get("http://" + addr); err == nil {
			t.Error("the config's health address is served although a flag overrides it")
		}
	})
}

// TestConfigIsChecked: all invalid flags are reported at once.
func TestConfigIsChecked(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start(func(cfg *server.Config) {
			cfg.Shard, cfg.ID, cfg.CacheDir, cfg.AdvertiseHost = "Dev_1", "", "", "10.0.0.1:99"
			cfg.Store, cfg.StorageProvider = nil, "ftp"
		})
		<-p.done
		for _, want := range []string{"--shard: \"Dev_1\"", "--id: is empty", "--storage-provider: \"ftp\"", "--storage-bucket", "--cache-dir",
			"--advertise-host: \"10.0.0.1:99\""} {
			if p.err == nil || !strings.Contains(p.err.Error(), want) {
				t.Errorf("said %v, want %q in it", p.err, want)
			}
		}
	})
}

// TestPortZero: the advertised port is the bound one.
func TestPortZero(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		addrs := s.leader().Addrs
		for name, pair := range map[string][2]string{
			"registration": {addrs.Registration, p.registrationAddr()},
			"operator":     {addrs.Operator, p.operatorAddr()},
			"agent":        {addrs.Agent, p.agentAddr()},
		} {
			if pair[0] != pair[1] || strings.HasSuffix(pair[0], ":0") || !strings.HasPrefix(pair[0], "127.0.0.1:") {
				t.Errorf("%s: the record says %s, the log %s", name, pair[0], pair[1])
			}
		}
	})
}

// TestCertificateIsRenewed: a server outlives its own certificate.
func TestCertificateIsRenewed(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start(func(cfg *server.Config) { cfg.Times.Certificate = time.Second }).awaitLeading()
		p.await("server certificate renewed")
		eventually(t, "a connection after the first certificate's end", func() error {
			if p.log.count("server certificate renewed") < 3 {
				return fmt.Errorf("renewed %d times", p.log.count("server certificate renewed"))
			}
			_, err := p.operator("default").ListGroups(within(t), &nstancev1.ListGroupsRequest{})
			return err
		})
	})
}
