package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVulncheck runs .ci/vulncheck with a stand-in for go that prints and exits as govulncheck
// does.
func TestVulncheck(t *testing.T) {
	const (
		unreachable = `govulncheck: fetching vulnerabilities: Get "https://vuln.go.dev/index/modules.json.gz": dial tcp: no such host`
		finding     = "Vulnerability #1: GO-2026-0001\n    fetching vulnerabilities by dial tcp ends in no such host"
		proxy       = `go: golang.org/x/vuln@v1.8.0: Get "https://modules.example.com/x": dial tcp: lookup modules.example.com: no such host`
	)
	for _, c := range []struct {
		name, out, rc string
		env           []string
		fails         bool
		says          string
	}{
		{name: "nothing found", out: "No vulnerabilities found.", rc: "0", env: []string{"CI=true"}},
		{name: "a finding", out: finding, rc: "3", fails: true, says: "GO-2026-0001"},
		{name: "a finding, whatever else is printed", out: unreachable + "\n" + finding, rc: "3", env: []string{"VULNDB=0"}, fails: true},
		{name: "no database here", out: unreachable, rc: "1", says: "SKIPPED"},
		{name: "no database where CI is set", out: unreachable, rc: "1", env: []string{"CI=true"}, fails: true, says: "VULNDB=0"},
		{
			name: "no database where CI is set, and that was asked for", out: unreachable, rc: "1", env: []string{"CI=true", "VULNDB=0"},
			says: "SKIPPED",
		},
		{name: "CI is set to no", out: unreachable, rc: "1", env: []string{"CI=false"}, says: "SKIPPED"},
		{name: "no database where it is required", out: unreachable, rc: "1", env: []string{"VULNDB=1"}, fails: true, says: "FAILED"},
		{name: "no module proxy", out: proxy, rc: "1", env: []string{"VULNDB=0"}, fails: true},
		{
			name: "a package that does not compile", out: "govulncheck: loading packages: syntax error", rc: "1", env: []string{"VULNDB=0"},
			fails: true,
		},
		{name: "a value that is none", rc: "0", env: []string{"VULNDB=yes"}, fails: true, says: "VULNDB=yes is not valid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bin := t.TempDir()
			const program = "#!/bin/sh\nprintf '%s\\n' \"$SAYS\"\nexit \"$EXITS\"\n"
			if err := os.WriteFile(filepath.Join(bin, "go"), []byte(program), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(filepath.Join("..", "..", ".ci", "vulncheck"))
			cmd.Env = append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + bin, "SAYS=" + c.out, "EXITS=" + c.rc}, c.env...)
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(out), c.says) || !strings.Contains(string(out), c.out) {
				t.Errorf("%v, want failed %v and %q in\n%s", err, c.fails, c.says, out)
			}
		})
	}
}

// TestRunGoesOnWithoutADatabase: .ci/run sets VULNDB so, unless it is set already.
func TestRunGoesOnWithoutADatabase(t *testing.T) {
	for _, c := range []struct{ env, want string }{{"CI=true", "0"}, {"VULNDB=", "0"}, {"VULNDB=1", "1"}} {
		bin := t.TempDir()
		if err := os.WriteFile(filepath.Join(bin, "make"), []byte("#!/bin/sh\necho \"$1 VULNDB=$VULNDB\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join("..", "..", ".ci", "run"))
		cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), c.env}
		out, err := cmd.CombinedOutput()
		if want := "ci VULNDB=" + c.want + "\n"; err != nil || string(out) != want {
			t.Errorf("%s: %q, %v, want %q", c.env, out, err, want)
		}
	}
}
