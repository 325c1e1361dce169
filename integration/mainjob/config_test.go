//go:build integration

package mainjob

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// configFile returns dev-s3's file of a shard's config.
func (s *stack) configFile(shard string) string {
	return filepath.Join(s.temp, "dev-s3", "config", shard+".jsonc")
}

// write puts a config into the bucket.
func (s *stack) write(shard, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.configFile(shard), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// with returns the shard's config with pairs of old and new texts replaced, each of which must
// occur.
func (s *stack) with(shard string, pairs ...string) string {
	s.t.Helper()
	body, err := os.ReadFile(s.configFile(shard))
	if err != nil {
		s.t.Fatal(err)
	}
	text := string(body)
	for n := 0; n < len(pairs); n += 2 {
		if !strings.Contains(text, pairs[n]) {
			s.t.Fatalf("the config of %s has no %s:\n%s", shard, pairs[n], text)
		}
		text = strings.Replace(text, pairs[n], pairs[n+1], 1)
	}
	return text
}

// reconfigure changes a shard's config and refreshes it, until the test ends.
func (s *stack) reconfigure(shard string, pairs ...string) {
	s.t.Helper()
	old := s.with(shard)
	s.write(shard, s.with(shard, pairs...))
	s.t.Cleanup(func() {
		s.write(shard, old)
		s.refresh(shard, "--yes")
	})
	s.refresh(shard)
}

// refresh makes a shard read its config, which must be valid, and returns the result.
func (s *stack) refresh(shard string, more ...string) string {
	s.t.Helper()
	var all []struct {
		Outcome string `json:"outcome"`
	}
	out := s.admin(append([]string{"config", "refresh", "--shard", shard, "-o", "json"}, more...)...)
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		s.t.Fatalf("refresh: %v: %s", err, out)
	}
	return all[0].Outcome
}

// received reads a file that was sent to an instance's agent; ok is false if it does not exist.
func (s *stack) received(shard, id, name string) (content string, ok bool) {
	s.t.Helper()
	return s.onMachine(shard, id, "recv/"+name)
}

func (s *stack) onMachine(shard, id, path string) (content string, ok bool) {
	s.t.Helper()
	file := filepath.Join(s.temp, "agents", shard, id, path)
	if s.provider == "docker" {
		file = filepath.Join(s.t.TempDir(), "copy")
		if exec.Command("docker", "cp", s.container(id)+":/opt/nstance-agent/"+path, file).Run() != nil {
			return "", false
		}
	}
	body, err := os.ReadFile(file)
	return string(body), err == nil
}

// receives waits until an instance has a file that passes, and returns it.
func (s *stack) receives(shard, id, name string, pass func(string) bool) string {
	s.t.Helper()
	var last string
	s.eventually(id+" receives "+name, func() (bool, string) {
		content, ok := s.received(shard, id, name)
		last = content
		return ok && pass(content), content
	})
	return last
}

// holds returns a check that a file contains a text.
func holds(text string) func(string) bool {
	return func(content string) bool { return strings.Contains(content, text) }
}

// TestConfig changes the config of a running shard in several ways.
func TestConfig(t *testing.T) {
	tell(t, "process", false,
		story{"16 a refresh that is not valid changes nothing, and names everything wrong", refusesConfig},
		story{"16 a refresh that changes nothing says so", refreshesNothing},
		story{"16 a group that leaves the config goes with a drain, others stay", removesGroup},
		story{"15 two tenants with equal group names never meet", separatesTenants},
		story{"18 a watch tells of groups, leaving instances and problems", watchesAll},
	)
}

func refusesConfig(s *stack) {
	before := s.running("dev-1")
	good := s.with("dev-1")
	s.write("dev-1", s.with("dev-1", `"subnet_pool": "workers"`, `"subnet_pool": "wrkers"`, `"size": 2`, `"size": -1`))
	_, errOut, code := s.try("config", "refresh", "--shard", "dev-1")
	if code != 1 || !strings.Contains(errOut, "templates.knd.subnet_pool") || !strings.Contains(errOut, "groups.default.web.size") {
		s.t.Errorf("exit %d: %s", code, errOut)
	}
	s.scale("dev-1", 3) // the shard keeps the accepted config
	s.scale("dev-1", 2)
	s.write("dev-1", good)
	s.refresh("dev-1")
	if after := s.running("dev-1"); len(after) != 2 || after[0] != before[1] {
		s.t.Errorf("the fleet went from %v to %v", before, after)
	}
}

func refreshesNothing(s *stack) {
	s.refresh("dev-1")
	if outcome := s.refresh("dev-1"); outcome != "unchanged" {
		s.t.Errorf("a refresh of the same text: %s", outcome)
	}
}

func removesGroup(s *stack) {
	web := s.running("dev-1")
	old := s.with("dev-1")
	s.write("dev-1", s.with("dev-1", `"web": {`, `"extra": { "template": "knd", "size": 1 }, "web": {`))
	s.refresh("dev-1")
	s.eventually("the new group has its instance", func() (bool, string) {
		all := s.running("dev-1")
		return len(all) == 3, strings.Join(all, " ")
	})
	s.write("dev-1", old)
	all := s.running("dev-1")
	_, errOut, code := s.try("config", "refresh", "--shard", "dev-1")
	if code != 2 || !strings.Contains(errOut, "default/extra") || !strings.Contains(errOut, "--yes") {
		s.t.Errorf("a refresh that takes a group away: exit %d, %s", code, errOut)
	}
	s.dev("kill", "dev-1") // a restart does not remove it either
	s.dev("start", "dev-1")
	s.eventually("the next leader says what it waits for", func() (bool, string) {
		out, errOut, _ := s.try("config", "status", "--shard", "dev-1", "-o", "json")
		return strings.Contains(out, `"group": "extra"`), out + errOut
	})
	if now := s.running("dev-1"); strings.Join(now, " ") != strings.Join(all, " ") {
		s.t.Errorf("unasked the fleet went from %v to %v", all, now)
	}
	s.refresh("dev-1", "--accept-removal", "default/extra")
	s.eventually("the group is gone", func() (bool, string) {
		out := s.admin("group", "list", "--shard", "dev-1", "-o", "json")
		return !strings.Contains(out, `"extra"`), out
	})
	drained := false
	for _, i := range s.instances("dev-1", "--deleted", "--group", "extra") {
		drained = drained || i.Reason == "group-removed" || i.Reason == "scale-down"
	}
	if after := s.running("dev-1"); strings.Join(after, " ") != strings.Join(web, " ") || !drained {
		s.t.Errorf("web went from %v to %v; the reason of the other group's end is there: %t", web, after, drained)
	}
}

func separatesTenants(s *stack) {
	s.reconfigure("dev-1", `"groups": {`, `"tenants": { "prod": {} }, "groups": { "prod": { "web": { "template": "prd", "size": 1 } },`,
		`"workers": [`, `"prod": { "subnets": ["theirs"], "tenants": ["prod"] }, "workers": [`,
		`"templates": {`, `"templates": { "prd": { "tenants": ["prod"], "kind": "prd", "arch": "amd64", "subnet_pool": "prod" },`)
	identity := filepath.Join(s.t.TempDir(), "prod")
	s.admin("cluster", "register-operator", "--tenant", "prod", "--output-dir", identity)
	mine := s.running("dev-1") // of tenant default
	prod := func(args ...string) (string, string, int) {
		return s.try(append(args, "--shard", "dev-1", "--identity-dir", identity)...)
	}
	var theirs []instance
	s.eventually("the other tenant's instance runs", func() (bool, string) {
		out, errOut, _ := prod("instance", "list", "-o", "json")
		theirs = nil
		_ = json.Unmarshal([]byte(out), &theirs)
		return len(theirs) == 1 && theirs[0].Phase == "running", out + errOut
	})
	for _, id := range mine {
		if id == theirs[0].ID {
			s.t.Errorf("%s is of both tenants", id)
		}
		for _, cmd := range [][]string{{"instance", "status", id}, {"instance", "delete", id}, {"instance", "ack", id}} {
			if out, errOut, code := prod(cmd...); code == 0 || !strings.Contains(errOut, "no such instance") {
				s.t.Errorf("%v by the other tenant: exit %d, %s%s", cmd, code, out, errOut)
			}
		}
	}
	if out, errOut, code := prod("config", "refresh"); code == 0 {
		s.t.Errorf("the other tenant may refresh the config: %s%s", out, errOut)
	}
	if out, errOut, code := prod("group", "scale", "web", "2", "--wait"); code != 0 {
		s.t.Errorf("scale one's own: %s%s", out, errOut)
	}
	if g, _ := s.web("dev-1"); g.Size != 2 || g.ActualSize != 2 {
		s.t.Errorf("the other tenant's scaling touched %+v", g)
	}
	if after := s.running("dev-1"); strings.Join(after, " ") != strings.Join(mine, " ") {
		s.t.Errorf("the other tenant's doings changed %v to %v", mine, after)
	}
}

func watchesAll(s *stack) {
	path := filepath.Join(s.t.TempDir(), "watch")
	file, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	watch := exec.Command(filepath.Join(s.bin, "nstance-admin"), "watch", "--shard", "dev-1", "-o", "json")
	watch.Env, watch.Stdout, watch.Stderr = append(os.Environ(), s.env...), file, file
	if err := watch.Start(); err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		_ = watch.Process.Kill()
		_ = watch.Wait()
	}()
	tells := func(wants ...string) {
		s.t.Helper()
		for _, want := range wants {
			s.eventually("the watch tells "+want, func() (bool, string) {
				out, err := os.ReadFile(path)
				return err == nil && strings.Contains(string(out), want), string(out)
			})
		}
	}
	tells(`"kind":"snapshot"`) // otherwise the next steps may be over before they are observed
	s.scale("dev-1", 3)
	tells(`"actual_size":3`) // a watch may leave out a state that another one has followed
	s.scale("dev-1", 2)
	tells(`"phase":"INSTANCE_PHASE_DRAINING"`, `"phase":"INSTANCE_PHASE_DELETED"`, `"size":2`)
}

// TestRenewal runs a stack whose agents' certificates are valid for half a minute: a third of it is left
// for a late renewal.
func TestRenewal(t *testing.T) {
	s := newStack(t, "process")
	s.bring("--client-certificate-life", "30s")
	t.Run("20 agents renew their certificates with new keys, streams intact", func(t *testing.T) {
		renews(s.in(t))
	})
}

func renews(s *stack) {
	id := s.running("dev-1")[0]
	certificate, _ := s.onMachine("dev-1", id, "identity/identity.crt")
	key, _ := s.onMachine("dev-1", id, "identity/identity.key")
	lost := func() int {
		log, ok := s.onMachine("dev-1", id, "agent.log")
		if !ok {
			s.t.Fatal("the agent has no log")
		}
		return strings.Count(log, "lost the server")
	}
	opened := lost()
	for n := range 2 {
		s.eventually("the certificate and its key are new", func() (bool, string) {
			nextCert, _ := s.onMachine("dev-1", id, "identity/identity.crt")
			nextKey, _ := s.onMachine("dev-1", id, "identity/identity.key")
			renewed := nextCert != certificate && nextKey != key && nextCert != "" && nextKey != ""
			if renewed {
				certificate, key = nextCert, nextKey
			}
			return renewed, "renewal " + string(rune('1'+n))
		})
	}
	if now := lost(); now != opened {
		s.t.Errorf("streams broke %d times", now-opened)
	}
	// A new connection uses the new certificate, long after the first one expired.
	s.dev("kill", "dev-1")
	s.dev("start", "dev-1")
	s.settle("dev-1", 2)
	if !strings.Contains(strings.Join(s.running("dev-1"), " "), id) {
		s.t.Errorf("%s was replaced", id)
	}
	if lost() == opened {
		s.t.Errorf("the log does not tell of streams that broke: nothing was checked")
	}
}
