//go:build integration

// Package mainjob runs the stories of the main job with the real binaries: the development stack
// starts in a folder of its own, processes and files are killed, stopped, removed and damaged, and
// the effects visible to users are checked.
package mainjob

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/integration/waits"
)

// stack is a running development stack, with the tools to inspect and damage it.
type stack struct {
	t        *testing.T
	bin      string
	temp     string
	provider string
	examples string   // the folder of the configs, which are those of the repository with shorter periods
	env      []string // what temp/dev.env exports
	waits    *waits.Waits
}

// newStack returns a stack in a folder of its own, which does not run yet.
func newStack(t *testing.T, provider string) *stack {
	t.Helper()
	s := &stack{t: t, bin: filepath.Join(root(t), "bin"), temp: t.TempDir(), provider: provider, waits: waits.Of(t)}
	s.examples = filepath.Join(s.temp, "examples")
	if err := os.Mkdir(s.examples, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dev-1.jsonc", "dev-2.jsonc"} {
		text, err := os.ReadFile(filepath.Join(root(t), "examples", "dev", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.examples, name), []byte(waits.Shorten(t, string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// in returns the same stack for a subtest.
func (s *stack) in(t *testing.T) *stack {
	t.Helper()
	mine := *s
	mine.t, mine.waits = t, waits.Of(t)
	return &mine
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// up starts the stack, and stops it when the test ends, with a check that nothing is left.
func up(t *testing.T, provider string, standby bool) *stack {
	t.Helper()
	s := newStack(t, provider)
	var args []string
	if standby {
		args = append(args, "--standby")
	}
	s.bring(args...)
	return s
}

// bring starts the stack with additional flags.
func (s *stack) bring(args ...string) {
	s.t.Helper()
	t := s.t
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the stack's log:\n%s", tail(filepath.Join(s.temp, "logs", "dev.log"), 150))
		}
		s.dev("down")
		s.nothingLeft()
	})
	s.dev(append([]string{"up"}, args...)...)
	s.env = readEnv(t, filepath.Join(s.temp, "dev.env"))
}

// story is one numbered story.
type story struct {
	name string
	tell func(*stack)
}

// tell starts a stack and runs stories on it, one after the other.
func tell(t *testing.T, provider string, standby bool, stories ...story) {
	s := up(t, provider, standby)
	for _, st := range stories {
		t.Run(st.name, func(t *testing.T) { st.tell(s.in(t)) })
	}
}

// tellEverywhere runs stories on a stack of each provider that can run here.
func tellEverywhere(t *testing.T, stories ...story) {
	for _, provider := range providers(t) {
		t.Run(provider, func(t *testing.T) { tell(t, provider, false, stories...) })
	}
}

// dev runs bin/dev on this stack and returns its output.
func (s *stack) dev(args ...string) string {
	s.t.Helper()
	defer s.waits.For("dev " + strings.Join(args, " "))()
	args = append(args, "--bin", s.bin, "--temp", s.temp, "--examples", s.examples, "--provider", s.provider)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(s.bin, "dev"), args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("dev %v: %v\n%s", args, err, out)
	}
	return string(out)
}

type component struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Healthy bool   `json:"healthy"`
	Detail  string `json:"detail"`
}

// component returns the supervisor's status of one process.
func (s *stack) component(name string) component {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.bin, "dev"), "status", "--temp", s.temp)
	cmd.Env = append(os.Environ(), "DEV_OUTPUT=json")
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("dev status: %v", err)
	}
	var report struct{ Components []component }
	if err := json.Unmarshal(out, &report); err != nil {
		s.t.Fatalf("dev status: %v\n%s", err, out)
	}
	for _, c := range report.Components {
		if c.Name == name {
			return c
		}
	}
	s.t.Fatalf("no component %s in %s", name, out)
	return component{}
}

// try runs nstance-admin and returns its output, its error output and whether it succeeded.
func (s *stack) try(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	defer s.waits.For("nstance-admin " + strings.Join(args, " "))()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "nstance-admin"), args...)
	cmd.Env = append(append(os.Environ(), "NSTANCE_ADMIN_TIMEOUT=2m"), s.env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("nstance-admin %v: %v", args, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// admin is try for commands that must succeed.
func (s *stack) admin(args ...string) string {
	s.t.Helper()
	out, errOut, code := s.try(args...)
	if code != 0 {
		s.t.Fatalf("nstance-admin %v: exit %d\n%s%s", args, code, out, errOut)
	}
	return out
}

type group struct {
	Shard        string `json:"shard"`
	Key          string `json:"key"`
	Size         int    `json:"size"`
	ActualSize   int    `json:"actual_size"`
	PendingSize  int    `json:"pending_size"`
	DrainingSize int    `json:"draining_size"`
}

func (s *stack) groups() []group {
	s.t.Helper()
	var groups []group
	if err := json.Unmarshal([]byte(s.admin("group", "list", "-o", "json")), &groups); err != nil {
		s.t.Fatal(err)
	}
	return groups
}

// web returns the example group of one shard; ok is false while no leader of the shard answers.
func (s *stack) web(shard string) (g group, ok bool) {
	s.t.Helper()
	out, _, code := s.try("group", "list", "-o", "json", "--shard", shard, "--timeout", "5s")
	var groups []group
	if code != 0 || json.Unmarshal([]byte(out), &groups) != nil {
		return group{}, false
	}
	i := slices.IndexFunc(groups, func(g group) bool { return g.Key == "web" })
	if i < 0 {
		return group{}, false
	}
	return groups[i], true
}

// phase is a phase as people write it, from the name of the enum.
type phase string

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *phase) UnmarshalText(name []byte) error {
	*p = phase(strings.ToLower(strings.TrimPrefix(string(name), "INSTANCE_PHASE_")))
	return nil
}

type instance struct {
	ID        string     `json:"id"`
	Phase     phase      `json:"phase"`
	Reason    string     `json:"reason"`
	Connected bool       `json:"connected"`
	Provider  string     `json:"provider_id"`
	CreatedAt *time.Time `json:"created_at"`
}

func (s *stack) instances(shard string, more ...string) []instance {
	s.t.Helper()
	var all []instance
	out := s.admin(append([]string{"instance", "list", "-o", "json", "--shard", shard}, more...)...)
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// running returns the ids of the running instances, oldest first.
func (s *stack) running(shard string) []string {
	s.t.Helper()
	var ids []string
	for _, i := range s.instances(shard) {
		if i.Phase == "running" {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// scale sets the size of web and waits for it.
func (s *stack) scale(shard string, size int) {
	s.t.Helper()
	s.admin("group", "scale", "web", fmt.Sprint(size), "--shard", shard, "--wait")
}

// settle waits until web has exactly size instances, all of them running.
func (s *stack) settle(shard string, size int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("web of %s has %d instances", shard, size), func() (bool, string) {
		g, ok := s.web(shard)
		return ok && g.ActualSize == size && g.PendingSize == 0, fmt.Sprintf("%+v (answered: %t)", g, ok)
	})
}

// patience bounds every wait, generously: durations are measured by the benchmark, and load on the
// machine must not fail a story.
const patience = 2 * time.Minute

// eventually polls until ask returns true.
func (s *stack) eventually(what string, ask func() (bool, string)) {
	s.t.Helper()
	defer s.waits.For(what)()
	var last string
	for start := time.Now(); time.Since(start) < patience; {
		ok, detail := ask()
		if ok {
			return
		}
		last = detail
		time.Sleep(50 * time.Millisecond) // polling other processes: there is no event to wait for
	}
	s.t.Fatalf("not within %s: %s; last seen: %s", patience, what, last)
}

// sleep waits for a time that passes without an event.
func (s *stack) sleep(why string, span time.Duration) {
	s.t.Helper()
	defer s.waits.For(why)()
	time.Sleep(span)
}

// logs returns the lines of a component's log that contain all the texts.
func (s *stack) logs(name string, texts ...string) []string {
	s.t.Helper()
	f, err := os.Open(filepath.Join(s.temp, "logs", name+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	var found []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := sc.Text()
		if !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(line, t) }) {
			found = append(found, line)
		}
	}
	return found
}

var attr = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*"|\S*)`)

// attrs parses the key=value pairs of a log line.
func attrs(line string) map[string]string {
	out := map[string]string{}
	for _, m := range attr.FindAllStringSubmatch(line, -1) {
		out[m[1]] = strings.Trim(m[2], `"`)
	}
	return out
}

func (s *stack) timeAttr(line, key string) time.Time {
	s.t.Helper()
	at, err := time.Parse(time.RFC3339Nano, attrs(line)[key])
	if err != nil {
		s.t.Fatalf("%s of %q: %v", key, line, err)
	}
	return at
}

// nothingLeft fails if a process or container of the stack still exists.
func (s *stack) nothingLeft() {
	s.t.Helper()
	if left := s.left(); left != "" {
		s.t.Errorf("left behind:\n%s", left)
	}
}

// left lists the stack's existing processes and containers.
func (s *stack) left() string {
	s.t.Helper()
	out, err := exec.Command("ps", "-eo", "pid,stat,args").Output()
	if err != nil {
		s.t.Fatalf("list processes: %v", err)
	}
	var found strings.Builder
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, s.temp) {
			found.WriteString(line)
		}
	}
	if s.provider == "docker" {
		out, err := exec.Command("docker", "ps", "-a", "--filter", "label=nstance:engine-scope="+s.temp,
			"--format", "{{.ID}} {{.Names}} {{.Status}}").Output()
		if err != nil {
			s.t.Fatalf("list containers: %v", err)
		}
		found.Write(out)
	}
	return found.String()
}

func readEnv(t *testing.T, file string) []string {
	t.Helper()
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for line := range strings.Lines(string(body)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if ok {
			env = append(env, name+"="+strings.Trim(value, "'"))
		}
	}
	return env
}

func tail(file string, lines int) string {
	body, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(body), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
