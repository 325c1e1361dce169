package kubenode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const plain = `
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}, {name: open, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443/", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: secret}}]
`

func TestKubeconfig(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "token"), []byte("of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, change, to, token, want string }{
		{"a token", "", "", "secret", ""},
		{"a token in a file beside it", "token: secret", "tokenFile: token", "of a file", ""},
		{"nothing to show", "current-context: here", "current-context: open", "", ""},
		{"no such context", "current-context: here", "current-context: there", "", `there is no context "there"`},
		{"no such cluster", "cluster: c,", "cluster: d,", "", `there is no cluster "d"`},
		{"no such user", "name: u,", "name: v,", "", `there is no user "u"`},
		{"no URL", "https://127.0.0.1:6443/", "127.0.0.1:6443", "", "want a URL"},
		{"exec", "token: secret", "exec: {command: x}", "", "exec"},
		{"a name", "token: secret", "username: x", "", "username"},
		{"half a pair", "token: secret", "client-key-data: eA==", "", "client-certificate"},
		{"no base64", "token: secret", "client-key-data: '?'", "", "client-key-data: want base64"},
		{"no such file", "token: secret", "client-key: x", "", "client-key: open"},
		{"no certificate", "insecure-skip-tls-verify: true", "certificate-authority-data: eA==", "", "certificate-authority: no certificate"},
		{"no YAML", "contexts: [", "contexts: {[", "", "yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := parse([]byte(strings.Replace(plain, c.change, c.to, 1)), folder, time.Second)
			switch {
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("%v: want %q", err, c.want)
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want == "" && (e.token != c.token || e.base != "https://127.0.0.1:6443"):
				t.Fatalf("%q at %q", e.token, e.base)
			}
		})
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(`{"current-context":"a","contexts":[{"name":"a"}],"clusters":[{"name":"","cluster":{"server":"http://x"}}]}`))
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parse(text, folder, time.Second)
		if (e == nil) == (err == nil) {
			t.Fatalf("%v, %v", e, err)
		}
	})
}
