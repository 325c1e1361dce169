package workload

import (
	"strings"
	"testing"
)

// kubeconfigOf leads to a cluster with the additional lines of its cluster and of its user.
func kubeconfigOf(cluster, user string) string {
	return `apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}, {name: other, context: {cluster: c, user: o}}]
clusters:
- name: c
  cluster:
    server: https://192.0.2.1:6443
    ` + cluster + `
users:
- name: u
  user:
    ` + user + `
- name: o
  user: {tokenFile: /token}
`
}

const program = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}"

// TestInline: only what a kubeconfig itself holds is used.
func TestInline(t *testing.T) {
	for name, c := range map[string]struct{ cluster, user, err string }{
		"a token":          {user: "token: secret"},
		"a CA":             {cluster: `certificate-authority-data: ""`, user: "token: secret"},
		"a CA's file":      {cluster: "certificate-authority: /ca.crt", err: `certificate-authority of the cluster "c" is "/ca.crt"`},
		"a proxy":          {cluster: "proxy-url: http://192.0.2.2", err: `proxy-url of the cluster "c" is "http://192.0.2.2": want none`},
		"a token's file":   {user: "tokenFile: /token", err: `tokenFile of the user "u" is "/token": want none, and token instead`},
		"a certificate":    {user: "client-certificate: /tls.crt", err: `client-certificate of the user "u"`},
		"a key":            {user: "client-key: /tls.key", err: `and client-key-data instead`},
		"a program":        {user: program, err: `exec of the user "u" is "sh"`},
		"a provider":       {user: "auth-provider: {name: oidc}", err: `auth-provider of the user "u" is "oidc"`},
		"another user":     {user: "as: admin", err: `as of the user "u" is "admin": want none`},
		"another user's":   {user: `as-uid: "7"`, err: `as-uid of the user "u"`},
		"other groups":     {user: `as-groups: ["system:masters"]`, err: `as-groups of the user "u" is "[system:masters]"`},
		"more of another":  {user: `as-user-extra: {scopes: [all]}`, err: `as-user-extra of the user "u"`},
		"a token and more": {user: "token: secret\n    tokenFile: /var/run/token", err: `tokenFile of the user "u"`},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := inline([]byte(kubeconfigOf(c.cluster, c.user)))
			switch {
			case c.err == "" && (err != nil || config.Host != "https://192.0.2.1:6443" || config.BearerToken != "secret"):
				t.Errorf("%v, %v", config, err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want %s", err, c.err)
			}
		})
	}
	all := kubeconfigOf("proxy-url: http://192.0.2.2", "tokenFile: /token\n    as: admin")
	if _, err := inline([]byte(all)); err == nil || strings.Count(err.Error(), "want none") != 3 {
		t.Errorf("error %v, want all three", err)
	}
	none := strings.Replace(kubeconfigOf("", "token: secret"), "current-context: here", "current-context: there", 1)
	if _, err := inline([]byte(none)); err == nil || !strings.Contains(err.Error(), `current-context "there"`) {
		t.Errorf("error %v, want the context", err)
	}
}

// FuzzInline: whatever a Secret holds, nothing but itself is used.
func FuzzInline(f *testing.F) {
	f.Add(kubeconfigOf("", "token: secret"))
	f.Add(kubeconfigOf("proxy-url: http://192.0.2.2", program))
	f.Add(`{"current-context": "", "contexts": [{"name": ""}], "users": [{"name": "", "user": {"tokenFile": "/token"}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := inline([]byte(text))
		if err != nil {
			return
		}
		if c.BearerTokenFile+c.CertFile+c.KeyFile+c.CAFile+c.Impersonate.UserName+c.Impersonate.UID != "" || c.ExecProvider != nil ||
			c.AuthProvider != nil || c.Proxy != nil || len(c.Impersonate.Groups)+len(c.Impersonate.Extra) > 0 {
			t.Errorf("it leads by more than itself: %v", c)
		}
	})
}
