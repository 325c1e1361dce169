//go:build integration

package terraform_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	sum "crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// boots returns the boot scripts of a fixture's machines, with variables as in a shell.
func boots(t *testing.T, of string) map[string]string {
	t.Helper()
	done, err := here.programs[0].apply(t, here.copied(t), fixtures()[of])
	server, err1 := userData(done)
	agent, err2 := web(done)
	if err := errors.Join(err, err1, err2); err != nil {
		t.Fatal(err)
	}
	// The values that a server fills in for each instance.
	filled := regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllString(agent.Userdata.Content, "filled-in")
	return map[string]string{"server": server, "agent": filled}
}

// fake is a program that records its calls. The first calls of dnf and docker pull fail as often as
// the variable FAILURES says.
const fake = `#!/bin/sh
call="$(basename "$0") $*"
echo "$call" >>"$CALLS"
case $call in
"dnf install"*|"docker pull"*) [ "$(grep -cFx "$call" "$CALLS")" -gt "$FAILURES" ] ;;
esac
`

// booted runs a script with a folder as /, and returns the recorded calls.
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
	said, failed := executed(t, script, folder, "CALLS="+calls, "FAILURES="+failures)
	called, err := os.ReadFile(calls)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return folder, string(called), failed
}

// executed runs a script with a folder as /, whose programs in bin have precedence.
func executed(t *testing.T, script, folder string, env ...string) ([]byte, error) {
	t.Helper()
	moved := regexp.MustCompile(`/(etc|opt|usr/local|var/cache|var/tmp)/`).ReplaceAllString(script, folder+"/$1/")
	cmd := exec.CommandContext(t.Context(), "sh", "-s")
	cmd.Stdin = strings.NewReader(moved)
	cmd.Env = append([]string{"PATH=" + filepath.Join(folder, "bin") + ":/usr/bin:/bin", "TMPDIR=" + filepath.Join(folder, "memory")}, env...)
	return cmd.CombinedOutput()
}

// TestBootTriesAgain: a registry that fails up to nine times does not abort a boot. One that keeps
// failing does, so that the machine is replaced.
func TestBootTriesAgain(t *testing.T) {
	offline(t)
	for name, script := range boots(t, "images") {
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

// TestBootSpeaks: a server's output is in the console log, which can be read without a login.
func TestBootSpeaks(t *testing.T) {
	offline(t)
	folder, calls, err := booted(t, boots(t, "images")["server"], "0")
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

// packed returns an archive like a release's (images/release): all programs, of which a machine
// installs some.
func packed(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, name := range []string{
		"LICENSE", "bin/nstance-admin", "bin/nstance-agent", "bin/nstance-asg", "bin/nstance-operator", "bin/nstance-server",
		"systemd/nstance-agent.service", "systemd/nstance-asg.service", "systemd/nstance-server.service",
	} {
		header := &tar.Header{Name: "nstance_0.1.0_linux_arm64/" + name, Mode: 0o755, Size: int64(len(name)), Format: tar.FormatPAX}
		err := w.WriteHeader(header)
		if err == nil {
			_, err = w.Write([]byte(name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestBootUnpacksWhatItInstalls: the archive and its files are on the disk, since /tmp is memory,
// and only installed files are extracted. The folder is deleted afterwards.
func TestBootUnpacksWhatItInstalls(t *testing.T) {
	offline(t)
	archive := packed(t)
	for name, want := range map[string][]string{
		"server": {
			"bin/nstance-admin", "bin/nstance-asg", "bin/nstance-server", "systemd/nstance-asg.service", "systemd/nstance-server.service",
		},
		"agent": {"bin/nstance-agent", "systemd/nstance-agent.service"},
	} {
		folder := t.TempDir()
		script := strings.ReplaceAll(boots(t, "shard")[name], sha256, fmt.Sprintf("%x", sum.Sum256(archive)))
		unpacked, installed := unpack(t, folder, script, archive)
		if !slices.Equal(unpacked, want) {
			t.Errorf("%s: unpacked on the disk are %v, want %v", name, unpacked, want)
		}
		slices.Sort(installed)
		var names []string
		for _, one := range want {
			names = append(names, filepath.Base(one))
		}
		slices.Sort(names)
		if !slices.Equal(installed, names) {
			t.Errorf("%s: installed are %v, want %v", name, installed, names)
		}
		if left, _ := os.ReadDir(filepath.Join(folder, "var/tmp")); len(left) > 0 {
			t.Errorf("%s: %v is left on the disk", name, left)
		}
	}
}

// unpack runs a script whose curl returns the archive, and returns which files were extracted below
// /var/tmp, and which were installed.
func unpack(t *testing.T, folder, script string, archive []byte) (unpacked, installed []string) {
	t.Helper()
	for _, name := range []string{"bin", "memory", "etc/systemd/network", "etc/systemd/system", "usr/local/bin", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const quiet = "#!/bin/sh\n"
	programs := map[string]string{
		"hostnamectl": quiet, "networkctl": quiet, "systemctl": quiet,
		"curl": quiet + `while [ "$1" != --output ]; do shift; done` + "\ncp \"$ARCHIVE\" \"$2\"\n",
		// The folder's content when it is deleted is what was extracted.
		"rm": quiet + "cd \"$FOLDER/var/tmp\" && find . -type f >\"$FOLDER/unpacked\"\nexec /bin/rm \"$@\"\n",
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(folder, "bin", name), []byte(text), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	at := filepath.Join(folder, "archive.tar.gz")
	if err := os.WriteFile(at, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := executed(t, script, folder, "ARCHIVE="+at, "FOLDER="+folder); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	found, err := os.ReadFile(filepath.Join(folder, "unpacked"))
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(found)) {
		if _, inside, _ := strings.Cut(strings.TrimPrefix(path, "./"), "/"); inside != "nstance.tar.gz" {
			unpacked = append(unpacked, inside)
		}
	}
	slices.Sort(unpacked)
	for _, pattern := range []string{"usr/local/bin/*", "etc/systemd/system/*.service"} {
		paths, _ := filepath.Glob(filepath.Join(folder, pattern))
		for _, path := range paths {
			installed = append(installed, filepath.Base(path))
		}
	}
	return unpacked, installed
}
