package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/object/dir"
)

func TestClusterConfigPut(t *testing.T) {
	// A bucket that no server has used, without an encryption key.
	c := &fixture{t: t, bucket: filepath.Join(t.TempDir(), "bucket")}
	c.env = map[string]string{"NSTANCE_ADMIN_STORAGE_PROVIDER": "dir", "NSTANCE_ADMIN_STORAGE_BUCKET": c.bucket}
	text := read(t, "../../../examples/config.jsonc")
	path := filepath.Join(t.TempDir(), "shard.jsonc")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() (body string, etag string) {
		t.Helper()
		store, err := dir.New(dir.Config{Root: c.bucket})
		if err != nil {
			t.Fatal(err)
		}
		o, err := store.Get(t.Context(), "config/us-west-2a.jsonc")
		if err != nil {
			t.Fatal(err)
		}
		return string(o.Body), string(o.ETag)
	}

	write(text)
	put := []string{"cluster", "config", "put", "us-west-2a", path}
	wantOutput := func(r result, want string) {
		t.Helper()
		if !strings.Contains(r.want(t, cli.ExitOK).out, want) {
			t.Errorf("output %q, want %q in it", r.out, want)
		}
	}
	wantOutput(c.run(put...), "stored the config of shard us-west-2a (")
	body, first := stored()
	if body != text {
		t.Errorf("stored %d bytes, want %d", len(body), len(text))
	}
	wantOutput(c.run(put...), "is already stored")
	if _, again := stored(); again != first {
		t.Error("the same text was written again")
	}
	write(text + "// changed\n")
	wantOutput(c.run(append(put, "-o", "json")...), `"changed": true`)
	accepted, _ := stored()

	write(strings.Replace(text, `"arch"`, `"arhc"`, 1))
	c.run(put...).want(t, cli.ExitFailed, "is not valid", "arhc")
	if body, _ := stored(); body != accepted {
		t.Error("an invalid config was stored")
	}
	c.run("cluster", "config", "put", "US", path).want(t, cli.ExitUsage, "SHARD", `"US"`)
	c.run("cluster", "config", "put", "us-west-2a", path+".none").want(t, cli.ExitUsage, "no such file")
	c.run("cluster", "config", "put", "us-west-2a").want(t, cli.ExitUsage)
	c.env["NSTANCE_ADMIN_STORAGE_BUCKET"] = ""
	c.run(put...).want(t, cli.ExitUsage, "--storage-bucket")
}
