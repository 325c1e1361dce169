//go:build integration

package mainjob

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/integration/waits"
)

// TestRecords is story 6: records and machines that do not match.
func TestRecords(t *testing.T) {
	tellEverywhere(t,
		story{"06 a machine whose record was removed is replaced, and lives", losesRecord},
		story{"06 a stray machine with our tags is deleted", findsStray},
		story{"06 a lost bucket makes the server ask, not kill", losesBucket},
	)
}

// recordFile returns dev-s3's file of an instance's record.
func (s *stack) recordFile(shard, id string) string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.temp, "dev-s3", "instance", shard, "*.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err == nil && bytes.Contains(body, []byte(id)) {
			return file
		}
	}
	s.t.Fatalf("no record of %s in %s", id, shard)
	return ""
}

// losesRecord removes the record of a machine whose agent works: it is replaced in its group, but
// not deleted, and counts again when the record is back.
func losesRecord(s *stack) {
	before := s.running("dev-1")
	victim := before[0]
	file := s.recordFile("dev-1", victim)
	record, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("another machine takes its place", func() (bool, string) {
		now := s.running("dev-1")
		return len(now) == 2 && !slices.Contains(now, victim), strings.Join(now, " ")
	})
	s.eventually("the server says that its agent calls", func() (bool, string) {
		return len(s.logs("dev-1", "UnrecordedVMs", "calls with a valid certificate", victim)) > 0, ""
	})
	if !s.alive("dev-1", victim) {
		s.t.Error("a working machine was deleted because its record is missing")
	}
	if err := os.WriteFile(file, record, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the surplus machine goes", func() (bool, string) { return s.machines("dev-1") == 2, "" })
}

// conditions returns what the group web says, a line for each condition.
func (s *stack) conditions(shard string) string {
	s.t.Helper()
	out, _, _ := s.try("group", "status", "web", "--shard", shard, "-o", "json", "--timeout", "5s")
	var groups []struct {
		Conditions []struct{ Message string }
	}
	if json.Unmarshal([]byte(out), &groups) != nil || len(groups) == 0 {
		return out
	}
	var lines []string
	for _, c := range groups[0].Conditions {
		lines = append(lines, c.Message)
	}
	return strings.Join(lines, "\n")
}

// alive reports whether an instance's machine runs.
func (s *stack) alive(shard, id string) bool {
	s.t.Helper()
	if s.provider == "docker" {
		out, err := exec.Command("docker", "ps", "-q", "--filter", "label=nstance:instance-id="+id).Output()
		return err == nil && len(bytes.TrimSpace(out)) > 0
	}
	if _, err := os.Stat(filepath.Join(s.temp, "agents", shard, id, "pid")); err != nil {
		return false
	}
	return running(s.agentPID(shard, id))
}

func findsStray(s *stack) {
	s.settle("dev-1", 2)
	real := s.running("dev-1")
	stray := s.startStray("dev-1", real[1])
	if !s.alive("dev-1", stray) {
		s.t.Fatal("the stray did not start")
	}
	s.eventually("the stray is gone", func() (bool, string) {
		return !s.alive("dev-1", stray), ""
	})
	if now := s.running("dev-1"); !slices.Equal(now, real) {
		s.t.Errorf("want %v untouched, have %v", real, now)
	}
}

// startStray starts a machine with the tags of an unrecorded instance: those of a real one, with
// another id.
func (s *stack) startStray(shard, like string) string {
	s.t.Helper()
	last := "0"
	if strings.HasSuffix(like, "0") {
		last = "1"
	}
	id := like[:len(like)-1] + last
	if s.provider == "docker" {
		out, err := exec.Command("docker", "run", "-d",
			"--label", "nstance:managed=true", "--label", "nstance:cluster-id=example-cluster", "--label", "nstance:shard="+shard,
			"--label", "nstance:engine-scope="+s.temp,
			"--label", "nstance:instance-id="+id, "--label", "nstance:tenant=default", "--label", "nstance:group=web",
			"-v", filepath.Join(s.bin, "dev-s3")+":/idle:ro", "--entrypoint", "/idle", // any long-running program
			"-e", "AWS_ACCESS_KEY_ID=any", "-e", "AWS_SECRET_ACCESS_KEY=any",
			"nstance-agent:dev", "--root", "/opt/nstance-agent/recv").CombinedOutput()
		if err != nil {
			s.t.Fatalf("start a stray container: %v\n%s", err, out)
		}
		return id
	}
	dir := filepath.Join(s.temp, "agents", shard, id)
	state, err := os.ReadFile(filepath.Join(s.temp, "agents", shard, like, "state.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state.json"), bytes.ReplaceAll(state, []byte(like), []byte(id)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `read -r stat <"/proc/$$/stat"; read -r boot </proc/sys/kernel/random/boot_id
printf '%s\n%s\n%s\n' "$$" "$boot" "$stat" >"$1"; exec sleep 1000`, "sh", filepath.Join(dir, "pid"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	s.eventually("the stray wrote its pid", func() (bool, string) {
		body, _ := os.ReadFile(filepath.Join(dir, "pid"))
		return bytes.Count(body, []byte("\n")) == 3, string(body)
	})
	return id
}

// losesBucket deletes the records of a running fleet of twelve, as with a wrong prefix or a lost
// bucket. The server must neither touch the machines nor create new ones, and must log what an
// administrator has to check.
func losesBucket(s *stack) {
	s.scale("dev-1", 12)
	before, backup := s.running("dev-1"), filepath.Join(s.t.TempDir(), "backup.tar.gz")
	s.admin("cluster", "backup", backup)
	s.dev("kill", "dev-1")
	for _, lost := range []string{filepath.Join("dev-s3", "instance", "dev-1"), filepath.Join("cache", "dev-1")} {
		if err := os.RemoveAll(filepath.Join(s.temp, lost)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.dev("start", "dev-1")
	s.eventually("the server says that it holds back", func() (bool, string) {
		text := s.conditions("dev-1")
		return strings.Contains(text, "12 VMs"), text
	})
	// For three sweeps nothing may happen to the machines.
	end := s.waits.For("nothing to happen in three sweeps")
	deadline := time.Now().Add(3*waits.Sweep + time.Second)
	for time.Now().Before(deadline) {
		if n := s.machines("dev-1"); n != 12 {
			s.t.Fatalf("want all 12 machines untouched and none added, have %d", n)
		}
		time.Sleep(500 * time.Millisecond) // sampling
	}
	end()
	// The records are restored, and everything continues as before. A server that leads is noticed.
	if _, said, code := s.try("cluster", "restore", backup, "--yes"); code != 1 || !strings.Contains(said, "nothing was changed") {
		s.t.Errorf("a restore while servers lead: exit %d, %s", code, said)
	}
	s.dev("kill", "dev-1")
	s.admin("cluster", "restore", backup, "--shard", "dev-1", "--yes")
	s.dev("start", "dev-1")
	s.settle("dev-1", 12)
	if now := s.running("dev-1"); !slices.Equal(before, now) {
		s.t.Errorf("want %v untouched, have %v", before, now)
	}
	s.scale("dev-1", 2)
}
