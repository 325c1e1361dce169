package planetest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// marker is the prefix of comments with the permissions that the code needs.
const marker = "// +kubebuilder:rbac:"

// Allowed returns the access to the API server of a user who may do exactly what the markers
// in the Go files of these folders say: markers with a namespace apply to ns, the others
// cluster-wide. The folders are relative to the test's. The test fails if any request is
// forbidden, since a controller that retries may cope with that.
func (p *Plane) Allowed(tb testing.TB, ns string, folders ...string) *rest.Config {
	tb.Helper()
	return p.AllowedNames(tb, ns, nil, folders...)
}

// AllowedNames is like Allowed, with other names for objects that markers name.
func (p *Plane) AllowedNames(tb testing.TB, ns string, names map[string][]string, folders ...string) *rest.Config {
	tb.Helper()
	var here, everywhere []rbacv1.PolicyRule
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			tb.Fatalf("no Go files in %s: %v", folder, err)
		}
		for _, file := range files {
			h, e := rules(tb, file)
			for i := range h {
				h[i].ResourceNames = renamed(h[i].ResourceNames, names)
			}
			here, everywhere = append(here, h...), append(everywhere, e...)
		}
	}
	user := "operator-of-" + ns
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	meta, cluster := metav1.ObjectMeta{Namespace: ns, Name: user}, metav1.ObjectMeta{Name: user}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: here},
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}},
		&rbacv1.ClusterRole{ObjectMeta: cluster, Rules: everywhere},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: cluster, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		},
	} {
		if err := p.Client.Create(tb.Context(), o); err != nil {
			tb.Fatal(err)
		}
	}
	config := p.User(tb, user)
	var denied sync.Map
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return denying{next, &denied} })
	tb.Cleanup(func() { // runs after the cleanups of the config's users
		for what := range denied.Range {
			tb.Errorf("no marker allows it: %s", what)
		}
	})
	return config
}

// renamed replaces the names that have a replacement.
func renamed(from []string, names map[string][]string) (to []string) {
	for _, name := range from {
		if instead, ok := names[name]; ok {
			to = append(to, instead...)
		} else {
			to = append(to, name)
		}
	}
	return to
}

// denying records which requests were forbidden by RBAC.
type denying struct {
	next   http.RoundTripper
	denied *sync.Map // by their text
}

func (t denying) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusForbidden {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	// A terminating namespace or a quota forbids in other words.
	if bytes.Contains(body, []byte(" cannot ")) {
		t.denied.Store(r.Method+" "+r.URL.Path, nil)
	}
	return answer, nil
}

// rules parses the markers of a file: those with a namespace, and the others.
func rules(tb testing.TB, file string) (here, everywhere []rbacv1.PolicyRule) {
	tb.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(source)) {
		text, found := strings.CutPrefix(strings.TrimSpace(line), marker)
		if !found {
			continue
		}
		said := map[string][]string{}
		for _, part := range strings.Split(text, ",") {
			key, values, _ := strings.Cut(part, "=")
			for _, value := range strings.Split(values, ";") {
				said[key] = append(said[key], strings.Trim(value, `"`))
			}
		}
		rule := rbacv1.PolicyRule{
			APIGroups: said["groups"], Resources: said["resources"], ResourceNames: said["resourceNames"], Verbs: said["verbs"],
		}
		if said["namespace"] != nil {
			here = append(here, rule)
		} else {
			everywhere = append(everywhere, rule)
		}
	}
	return here, everywhere
}
