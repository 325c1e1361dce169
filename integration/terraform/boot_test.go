//go:build integration

package terraform_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// boots are the scripts that machines run when they are made of images, as a shell has them.
func boots(t *testing.T) map[string]string {
	t.Helper()
	done, err := here.programs[0].apply(t, here.copied(t), fixtures()["images"])
	server, err1 := userData(done)
	agent, err2 := web(done)
	if err := errors.Join(err, err1, err2); err != nil {
		t.Fatal(err)
	}
	// What a server fills in for each instance.
	filled := regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllString(agent.Userdata.Content, "filled-in")
	return map[string]string{"server": server, "agent": filled}
}

// fake is a program that writes down how it was called. Of what it is called for first, dnf and
// docker pull fail as often as the variable FAILURES says.
const fake = `#!/bin/sh
call="$(basename "$0") $*"
echo "$call" >>"$CALLS"
case $call in
"dnf install"*|"docker pull"*) [ "$(grep -cFx "$call" "$CALLS")" -gt "$FAILURES" ] ;;
esac
`

// booted runs a script in a folder that takes the place of /, and returns what it has called.
func booted(t *testing.T, script, failures string) (string, string, error) {
	t.Helper()
	folder := t.TempDir()
	bin, calls := filepath.Join(folder, "bin"), filepath.Join(folder, "calls")
	err := errors.Join(os.MkdirAll(bin, 0o755), os.MkdirAll(filepath.Join(folder, "etc/systemd/network"), 0o755),
		os.MkdirAll(filepath.Join(folder, "etc/systemd/system"), 0o755))
	for _, name := range []string{"dnf", "docker", "hostnamectl", "install", "networkctl", "sleep", "systemctl"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(bin, name), []byte(fake), 0o700)) //nolint:gosec // it is run
	}
	if err != nil {
		t.Fatal(err)
	}
	moved := regexp.MustCompile(`/(etc|opt|var/cache)/`).ReplaceAllString(script, folder+"/$1/")
	cmd := exec.CommandContext(t.Context(), "sh", "-s")
	cmd.Stdin = strings.NewReader(moved)
	cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin", "CALLS=" + calls, "FAILURES=" + failures}
	said, failed := cmd.CombinedOutput()
	called, err := os.ReadFile(calls)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return folder, string(called), failed
}

// TestBootTriesAgain: a registry that fails once, or nine times, ends no boot. One that goes on
// failing does, so that the machine is given up.
func TestBootTriesAgain(t *testing.T) {
	offline(t)
	for name, script := range boots(t) {
		pull := "docker pull --quiet ghcr.io/example/nstance-" + name + digest + "\n"
		for failures, tries := range map[string]int{"0": 1, "1": 2, "9": 10} {
			_, calls, err := booted(t, script, failures)
			if err != nil || strings.Count(calls, pull) != tries || strings.Count(calls, "dnf install -y docker\n") != tries {
				t.Errorf("%s, with %s failures: %v, want %d tries of each in\n%s", name, failures, err, tries, calls)
			}
			if tries > 1 && !strings.Contains(calls, pull+"sleep 5\n"+pull) {
				t.Errorf("%s: want 5 s between two tries in\n%s", name, calls)
			}
			if !strings.Contains(calls, "systemctl enable --now nstance-"+name+".service") {
				t.Errorf("%s, with %s failures: it is not started:\n%s", name, failures, calls)
			}
		}
		_, calls, err := booted(t, script, "10")
		if err == nil || strings.Count(calls, "dnf install") != 10 || strings.Contains(calls, "systemctl") {
			t.Errorf("%s: %v, want an end after 10 tries of\n%s", name, err, calls)
		}
	}
}

// TestBootSpeaks: what a server says is in the console, which can be read of a machine that
// nobody gets onto.
func TestBootSpeaks(t *testing.T) {
	offline(t)
	folder, calls, err := booted(t, boots(t)["server"], "0")
	if err != nil {
		t.Fatalf("%v\n%s", err, calls)
	}
	const want = "[Service]\nStandardOutput=journal+console\nStandardError=journal+console\n"
	for _, unit := range []string{"nstance-server", "nstance-asg"} {
		text, err := os.ReadFile(filepath.Join(folder, "etc/systemd/system", unit+".service.d", "console.conf"))
		if err != nil || string(text) != want {
			t.Errorf("%s: %q (%v), want %q", unit, text, err, want)
		}
	}
}
