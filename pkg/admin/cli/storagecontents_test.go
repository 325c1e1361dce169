package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/dev/s3"
	"github.com/nstance/nstance/pkg/object"
)

// configured stores a config of a shard, as written and as accepted.
func (c *fixture) configured(shard string) {
	c.t.Helper()
	text := `{ "cluster": { "id": "` + clusterID + `", "secrets": { "encryption_key": { "provider": "env", "source": "K" } } },
	  "server": { "provider": { "kind": "process" }, "subnet_pools": { "workers": ["local"] } } }`
	for _, key := range []string{"config/" + shard + ".jsonc", "applied/" + shard + ".jsonc"} {
		if _, err := c.store.Put(c.t.Context(), key, []byte(text), object.Precondition{}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestStorageCheckContents: whatever is missing of what servers start from is named, in the storage
// check and by the doctor; a bucket without a cluster has nothing to miss.
func TestStorageCheckContents(t *testing.T) {
	for _, gone := range []string{
		"", "config/dev-1.jsonc", "applied/dev-1.jsonc", "cluster/ca.crt", "cluster/secret/ca.key", "cluster/secret/ca-bundle",
		"cluster/secret/registration-nonce.key",
	} {
		c := newFixture(t)
		c.leads("dev-1", false, true)
		c.env["NSTANCE_STORAGE_PROVIDER"] = "dir"
		if c.run("storage", "check").want(t, cli.ExitOK); gone == "" {
			continue
		}
		if err := c.store.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		c.run("storage", "check").want(t, cli.ExitFailed, "missing: "+gone+": restore")
		d := c.doctor(cli.ExitFailed, "--servers", "")["what servers start from"]
		if d.Result != "fail" || !strings.Contains(d.Detail, gone) {
			t.Errorf("without %s: %+v", gone, d)
		}
	}
}

// TestStorageCheckAppliedAlone: the secrets' place is known from the last accepted config, too.
func TestStorageCheckAppliedAlone(t *testing.T) {
	c := newFixture(t)
	c.leads("dev-1", false, true)
	for _, key := range []string{"config/dev-1.jsonc", "cluster/secret/ca.key"} {
		if err := c.store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	c.run("storage", "check").want(t, cli.ExitFailed, "missing: cluster/secret/ca.key, config/dev-1.jsonc: restore")
}

// TestStorageCheckLifecycle: rules that delete what the cluster needs fail the check; if they can't
// be read, it says so, and passes.
func TestStorageCheckLifecycle(t *testing.T) {
	rule := func(prefix string) string {
		return `<LifecycleConfiguration><Rule><ID>tidy up</ID><Filter><Prefix>` + prefix + `</Prefix></Filter><Status>Enabled</Status>` +
			`<Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>`
	}
	const denied = "<Error><Code>AccessDenied</Code></Error>"
	var answer string
	store, err := s3.New(s3.Config{Root: t.TempDir(), Bucket: "bucket", Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !r.URL.Query().Has("lifecycle") || answer == "":
				next.ServeHTTP(w, r)
			case answer == denied:
				w.WriteHeader(http.StatusForbidden)
				fallthrough
			default:
				fmt.Fprint(w, answer)
			}
		})
	}, Keys: func(string, string) (string, bool) { return "s", true }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(store)
	defer server.Close()
	env := map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_S3_USE_PATH_STYLE": "true",
	}
	for prefix, concerned := range map[string]bool{
		"": true, "c": true, "config/": true, "cluster/secret/": true, "instance/knd": true, "certlog/": false, "certlog/dev-1/": false,
		"backups/": false, "probe/": false,
	} {
		answer = rule(prefix)
		code, out, errOut := checkStorage(env, "--storage-bucket", "bucket")
		told := strings.Contains(out+errOut, fmt.Sprintf(`rule "tidy up" deletes objects after 30 days below %q`, prefix))
		if told != concerned || (code != cli.ExitOK) != concerned {
			t.Errorf("below %q: exit %d\n%s%s", prefix, code, out, errOut)
		}
	}
	for _, answer = range []string{"", denied} {
		code, out, errOut := checkStorage(env, "--storage-bucket", "bucket")
		if code != cli.ExitOK || strings.Contains(out, "not checked") != (answer == denied) {
			t.Errorf("answered %q: exit %d\n%s%s", answer, code, out, errOut)
		}
	}
}
