package workload

import (
	"strings"
	"testing"
)

// kubeconfigOf returns a kubeconfig with additional lines for its cluster and its user.
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

// TestInline: only a self-contained kubeconfig is accepted.
func TestInline(t *testing.T) {
	for name, c := range map[string]struct{ cluster, user, err string }{
		"token":                {user: "token: secret"},
		"CA":                   {cluster: `certificate-authority-data: ""`, user: "token: secret"},
		"CA file":              {cluster: "certificate-authority: /ca.crt", err: `certificate-authority of the cluster "c" is "/ca.crt"`},
		"proxy":                {cluster: "proxy-url: http://192.0.2.2", err: `proxy-url of the cluster "c" is "http://192.0.2.2": want none`},
		"token file":           {user: "tokenFile: /token", err: `tokenFile of the user "u" is "/token": want none, and token instead`},
		"certificate file":     {user: "client-certificate: /tls.crt", err: `client-certificate of the user "u"`},
		"key file":             {user: "client-key: /tls.key", err: `and client-key-data instead`},
		"exec plugin":          {user: program, err: `exec of the user "u" is "sh"`},
		"auth provider":        {user: "auth-provider: {name: oidc}", err: `auth-provider of the user "u" is "oidc"`},
		"impersonated user":    {user: "as: admin", err: `as of the user "u" is "admin": want none`},
		"impersonated UID":     {user: `as-uid: "7"`, err: `as-uid of the user "u"`},
		"impersonated groups":  {user: `as-groups: ["system:masters"]`, err: `as-groups of the user "u" is "[system:masters]"`},
		"impersonated extra":   {user: `as-user-extra: {scopes: [all]}`, err: `as-user-extra of the user "u"`},
		"token and token file": {user: "token: secret\n    tokenFile: /var/run/token", err: `tokenFile of the user "u"`},
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
		t.Errorf("error %v, want all three fields", err)
	}
	none := strings.Replace(kubeconfigOf("", "token: secret"), "current-context: here", "current-context: there", 1)
	if _, err := inline([]byte(none)); err == nil || !strings.Contains(err.Error(), `current-context "there"`) {
		t.Errorf("error %v, want the context", err)
	}
}

// FuzzInline: a config that is accepted refers to no file, program, proxy or other identity.
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
			t.Errorf("not self-contained: %v", c)
		}
	})
}
