package cli_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/object"
)

// objects returns what the bucket has, by key.
func (c *fixture) objects() map[string]string {
	c.t.Helper()
	infos, err := object.All(c.t.Context(), c.store, "")
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[string]string{}
	for _, i := range infos {
		o, err := c.store.Get(c.t.Context(), i.Key)
		if err != nil {
			c.t.Fatal(err)
		}
		all[i.Key] = string(o.Body)
	}
	return all
}

func (c *fixture) put(key, body string) {
	c.t.Helper()
	if _, err := c.store.Put(c.t.Context(), key, []byte(body), object.Precondition{}); err != nil {
		c.t.Fatal(err)
	}
}

// backedUp returns a cluster and the file of its backup.
func backedUp(t *testing.T) (*fixture, string) {
	t.Helper()
	c := newFixture(t)
	c.configured("dev-1")
	c.put("groups/dev-1/default/web.json", `{"size":3}`)
	file := filepath.Join(t.TempDir(), "backup.tar.gz")
	r := c.run("cluster", "backup", file).want(t, cli.ExitOK)
	if want := "backed up 7 objects ("; !strings.HasPrefix(r.out, want) {
		t.Errorf("output %q, want %q", r.out, want)
	}
	return c, file
}

// lose removes objects.
func (c *fixture) lose(keys ...string) {
	c.t.Helper()
	for _, key := range keys {
		if err := c.store.Delete(c.t.Context(), key); err != nil {
			c.t.Fatal(err)
		}
	}
}

// restore runs cluster restore, in simulated time: it waits.
func (c *fixture) restore(code int, args ...string) (r result) {
	c.t.Helper()
	synctest.Test(c.t, func(t *testing.T) {
		t.Helper()
		r = run(t, c.env, append([]string{"cluster", "restore"}, args...)...).want(t, code)
	})
	return r
}

// TestBackup: the file is its owner's, replaces no other one, and restores a lost bucket completely, without a
// question; what fails leaves no file.
func TestBackup(t *testing.T) {
	c, file := backedUp(t)
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	c.run("cluster", "backup", file).want(t, cli.ExitUsage, "FILE: "+file+" exists already")
	was := c.objects()
	c.lose(slices.Collect(maps.Keys(was))...)
	c.run("cluster", "backup", file+".2").want(t, cli.ExitFailed, "the storage holds no cluster")
	c.run("cluster", "backup", filepath.Join(file, "x")).want(t, cli.ExitUsage, "FILE: ")
	if names, err := os.ReadDir(filepath.Dir(file)); err != nil || len(names) != 1 {
		t.Errorf("the folder has %v, %v", names, err)
	}

	dry := c.run("cluster", "restore", file, "--dry-run").want(t, cli.ExitOK)
	if got := c.objects(); len(got) > 0 {
		t.Errorf("--dry-run put back %v", got)
	}
	r := c.restore(cli.ExitOK, file)
	if !strings.HasPrefix(r.errOut, "waiting: 38s") || r.out != dry.out || !strings.Contains(r.out, "config") {
		t.Errorf("output %s%s, want that of --dry-run, %s", r.out, r.errOut, dry.out)
	}
	if got := c.objects(); !maps.Equal(got, was) {
		t.Errorf("put back %v, want %v", got, was)
	}
	if r := c.run("cluster", "restore", file).want(t, cli.ExitOK); !r.quiet() {
		t.Errorf("with nothing to do it said %s", r.errOut)
	}
}

// TestRestoreKeeps: what the storage has stays, unless --replace names its part; a storage that is not empty is
// changed after a confirmation only, which names the configs and the groups.
func TestRestoreKeeps(t *testing.T) {
	c, file := backedUp(t)
	const config, group = "config/dev-1.jsonc", "groups/dev-1/default/web.json"
	was := c.objects()
	c.put(group, `{"size":5}`)
	c.put("groups/dev-1/default/new.json", `{"size":1}`)
	c.lose(config)
	now := c.objects()
	r := c.run("cluster", "restore", file, "--replace", "groups").want(t, cli.ExitUsage,
		"groups: 0 added, 1 replaced\n    replaced: "+group, "config: 1 added, 0 replaced\n    added: "+config, "--yes", "--dry-run")
	if got := c.objects(); !maps.Equal(got, now) || strings.Count(r.errOut, "nothing was changed") != 1 {
		t.Errorf("without confirmation: %s, and %v", r.errOut, got)
	}
	c.run("cluster", "restore", file, "--replace", "group,config").want(t, cli.ExitUsage,
		`--replace: the backup has no objects of "group": it has `)
	c.restore(cli.ExitOK, file, "--yes")
	now[config] = was[config]
	if got := c.objects(); !maps.Equal(got, now) {
		t.Errorf("without --replace: %v, want %v", got, now)
	}
	c.restore(cli.ExitOK, file, "--replace", "groups", "--yes")
	was["groups/dev-1/default/new.json"] = `{"size":1}`
	if got := c.objects(); !maps.Equal(got, was) {
		t.Errorf("with --replace: %v, want %v", got, was)
	}
}

// TestRestoreRefusals: nothing is put back while a server leads, into another cluster or a folder that is not
// there, from a file that is no complete backup, or if --timeout is too short.
func TestRestoreRefusals(t *testing.T) {
	c, file := backedUp(t)
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	half := file + ".half"
	if err := os.WriteFile(half, body[:len(body)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	c.lose("config/dev-1.jsonc")
	c.put("leader/dev-1.json", `{"holder":"dev-1.x","rev":1}`)
	was := c.objects()
	refused := func(r result, texts ...string) {
		t.Helper()
		if r.want(t, r.code, texts...); r.code == cli.ExitOK {
			t.Errorf("it succeeded: %s", r.out)
		}
		if got := c.objects(); !maps.Equal(got, was) {
			t.Errorf("%v: put back %v", texts, got)
		}
	}
	refused(c.run("cluster", "restore", half), half, "damaged or not complete")
	refused(c.run("cluster", "restore", file+".none"), "FILE: ", "no such file")
	refused(c.run("cluster", "restore"), "FILE")
	refused(c.run("cluster", "restore", file, "--yes", "--timeout", "30s"),
		"--timeout leaves no time for the wait of 38s", "nothing was changed")
	none := filepath.Join(t.TempDir(), "none")
	for _, more := range []string{"--yes", "--dry-run"} {
		refused(c.run("cluster", "restore", file, "--storage-bucket", none, more), "--storage-bucket: ", "make the folder first")
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a mistyped folder was made")
	}
	synctest.Test(t, func(t *testing.T) {
		renewal := time.AfterFunc(10*time.Second, func() { c.put("leader/dev-1.json", `{"holder":"dev-1.x","rev":2}`) })
		defer renewal.Stop()
		run(t, c.env, "cluster", "restore", file, "--yes").want(t, cli.ExitFailed, "dev-1.x leads shard dev-1", "; nothing was changed")
	})
	was["leader/dev-1.json"] = `{"holder":"dev-1.x","rev":2}`
	synctest.Test(t, func(t *testing.T) {
		c.put("groups/dev-1/default/web.json", `{"size":4}`)
		change := time.AfterFunc(10*time.Second, func() { c.put("groups/dev-1/default/web.json", `{"size":5}`) })
		defer change.Stop()
		run(t, c.env, "cluster", "restore", file, "--yes", "--replace", "groups").want(t, cli.ExitFailed,
			"has changed since it was compared", "; nothing was changed")
	})
	was["groups/dev-1/default/web.json"] = `{"size":5}`
	refused(c.run("cluster", "restore", file, "--shard", "dev-2"), `--shard: the backup has no objects of "dev-2": it has dev-1`)
	refused(c.run("cluster", "restore", file, "--shard", "dev-1", "--replace", "cluster"), `--replace: the backup has no objects of "cluster"`)
	ca := newFixture(t).objects()["cluster/ca.crt"]
	c.put("cluster/ca.crt", ca)
	was["cluster/ca.crt"] = ca
	refused(c.run("cluster", "restore", file, "--yes"), "belongs to another cluster")
	c.lose("cluster/ca.crt")
	delete(was, "cluster/ca.crt")
	refused(c.run("cluster", "restore", file, "--yes", "--shard", "dev-1"), "has no CA", "without --shard")
}

// TestRestoreOneShard: --shard puts back what is that shard's, while the servers of others lead.
func TestRestoreOneShard(t *testing.T) {
	c := newFixture(t)
	want := map[string]string{}
	for _, shard := range []string{"dev-1", "dev-10"} {
		c.configured(shard)
		for _, key := range []string{
			"groups/" + shard + "/default/web.json", "instance/" + shard + "/default.1.json", "events/" + shard + ".json",
		} {
			c.put(key, key)
			if shard == "dev-1" {
				want[key] = key
			}
		}
	}
	file := filepath.Join(t.TempDir(), "backup.tar.gz")
	c.run("cluster", "backup", file).want(t, cli.ExitOK)
	for key := range c.objects() {
		if strings.Contains(key, "dev-1") && !strings.HasPrefix(key, "config/") {
			c.lose(key)
		}
	}
	const leads = `{"holder":"dev-10.x","rev":1}`
	c.put("leader/dev-10.json", leads)
	c.put("leader/dev-1.json", `{"holder":"dev-1.x","rev":1,"released":true}`)
	maps.Copy(want, c.objects())
	c.configured("dev-1") // as the backup has it
	want["applied/dev-1.jsonc"] = c.objects()["applied/dev-1.jsonc"]
	c.lose("applied/dev-1.jsonc")
	c.restore(cli.ExitOK, file, "--shard", "dev-1", "--yes")
	if got := c.objects(); !maps.Equal(got, want) {
		t.Errorf("put back %v, want %v", got, want)
	}
}

// TestBackupThroughPipes: - is standard output, and standard input.
func TestBackupThroughPipes(t *testing.T) {
	c, _ := backedUp(t)
	was := c.objects()
	r := c.run("cluster", "backup", "-").want(t, cli.ExitOK, "backed up 7 objects")
	c.lose(slices.Collect(maps.Keys(was))...)
	synctest.Test(t, func(t *testing.T) {
		var out, errOut strings.Builder
		code := cli.Run(t.Context(), cli.Env{
			Args: []string{"cluster", "restore", "-"}, Getenv: func(name string) string { return c.env[name] },
			Stdin: strings.NewReader(r.out), Stdout: &out, Stderr: &errOut, Now: time.Now,
		})
		if got := c.objects(); code != cli.ExitOK || !maps.Equal(got, was) {
			t.Errorf("exit %d, %s%s, put back %v", code, out.String(), errOut.String(), got)
		}
	})
}
