package delivery_test

import (
	"context"
	"maps"
	"os/exec"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/server/delivery"
)

func TestEnvFile(t *testing.T) {
	body, err := delivery.EnvFile(map[string]any{
		"B": true, "A": "x=1,2", "N": int64(-3), "F": 2.5, "BIG": 1e21, "EMPTY": "", "SPACE": "a b\t", "QUOTES": `a"b'c` + "`d`$e\\",
		"HASH": "#x", "UTF": "ä",
	})
	want := "A=x=1,2\nB=true\nBIG=1000000000000000000000\nEMPTY=\nF=2.5\n" +
		"HASH=\"#x\"\nN=-3\nQUOTES=\"a\\\"b'c\\`d\\`\\$e\\\\\"\nSPACE=\"a b\t\"\nUTF=\"ä\"\n"
	if err != nil || string(body) != want {
		t.Errorf("wrote %s, %v, want %s", body, err, want)
	}
	for _, bad := range []any{"a\nB=c", "a\rb", "\x00", "\x7f", "\xff", "\u0085", []any{1}, nil} {
		if body, err := delivery.EnvFile(map[string]any{"A": bad}); err == nil || !strings.Contains(err.Error(), "value of A") {
			t.Errorf("%q gives %q, %v", bad, body, err)
		}
	}
}

// TestEnvFileInAShell reads values back with a real shell.
func TestEnvFileInAShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell here")
	}
	values := map[string]string{
		"A": "a b", "B": `$(echo no) $HOME`, "C": "`echo no`", "D": `"'"'`, "E": `\n\\`, "F": "!x; rm", "G": "~", "H": "*", "I": `a\"b`,
	}
	in := map[string]any{}
	for name, value := range values {
		in[name] = value
	}
	body, err := delivery.EnvFile(in)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range values {
		cmd := exec.CommandContext(context.Background(), sh, "-c", string(body)+"\nprintf %s \"$"+name+"\"")
		cmd.Dir = t.TempDir()
		out, err := cmd.Output()
		if err != nil || string(out) != want {
			t.Errorf("%s is %q in a shell, %v, want %q", name, out, err, want)
		}
	}
}

// FuzzEnvFile: for every value, the file has exactly its line, agents accept the file, and the
// value can be read back.
func FuzzEnvFile(f *testing.F) {
	for _, s := range []string{"", "x", "a b", "a\nB=c", `"`, `\`, `a"b'c$d` + "`", "\x00", "ä\u2028", "'", "#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		body, err := delivery.EnvFile(map[string]any{"A": value, "Z": "end"})
		if err != nil {
			return
		}
		if err := files.CheckContent("a.env", body); err != nil {
			t.Fatalf("an agent would refuse %q: %v", body, err)
		}
		if have := readEnv(t, string(body)); !maps.Equal(have, map[string]string{"A": value, "Z": "end"}) {
			t.Fatalf("%q is read as %q", body, have)
		}
	})
}

// readEnv parses a file like systemd and shells.
func readEnv(t *testing.T, text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok {
			t.Fatalf("the line %q", line)
		}
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			var b strings.Builder
			for inner := value[1 : len(value)-1]; inner != ""; inner = inner[1:] {
				if inner[0] == '\\' {
					inner = inner[1:]
				}
				b.WriteByte(inner[0])
			}
			value = b.String()
		}
		out[name] = value
	}
	return out
}
