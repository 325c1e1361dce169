package backup_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin/backup"
	"github.com/nstance/nstance/pkg/leaktest"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	_ "github.com/nstance/nstance/pkg/rapidseed"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { leaktest.Main(m.Run) }

// contents are the objects of a bucket.
type contents map[string]string

// store returns a bucket with these objects.
func (c contents) store(t testing.TB) *mem.Store {
	t.Helper()
	s := mem.New(mem.Config{})
	for key, body := range c {
		if _, err := s.Put(context.Background(), key, []byte(body), object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// in returns the objects of a bucket.
func in(t testing.TB, s object.Store) contents {
	t.Helper()
	infos, err := object.All(context.Background(), s, "")
	if err != nil {
		t.Fatal(err)
	}
	c := contents{}
	for _, i := range infos {
		o, err := s.Get(context.Background(), i.Key)
		if err != nil {
			t.Fatal(err)
		}
		c[i.Key] = string(o.Body)
	}
	return c
}

// taken returns the file of a backup.
func taken(t testing.TB, s object.Store) []byte {
	t.Helper()
	var file bytes.Buffer
	if _, err := backup.Take(context.Background(), s, &file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func read(t testing.TB, file []byte) backup.Objects {
	t.Helper()
	objects, err := backup.Read(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// putBack puts a backup back, and returns what it did.
func putBack(t testing.TB, s object.Store, file []byte, replace ...string) []backup.Restored {
	t.Helper()
	r, err := backup.Compare(context.Background(), s, read(t, file), backup.Selection{Replace: replace})
	if err == nil {
		err = r.Apply(context.Background(), s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.Parts
}

// certificate returns a PEM text with a certificate, as far as a backup looks at it.
func certificate(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

func example() contents {
	return contents{
		"cluster/ca.crt": certificate("one"), "cluster/secret/ca.key": "sealed", "config/a.jsonc": "{}", "applied/a.jsonc": "// {}",
		"groups/a/default/web.json": "web", "instance/a/default.1.json": "one", "files/" + strings.Repeat("ü", 110): "long",
		"leader/a.json": `{"holder":"a.1","released":true}`, "probe/x": "x",
	}
}

// TestBackup: a backup that is put back into an empty bucket is all of the bucket, without the election and
// without probes, and putting it back once more changes nothing.
func TestBackup(t *testing.T) {
	c := example()
	file := taken(t, c.store(t))
	s := contents{}.store(t)
	putBack(t, s, file)
	delete(c, "leader/a.json")
	delete(c, "probe/x")
	if got := in(t, s); !maps.Equal(got, c) {
		t.Errorf("put back: %v, want %v", got, c)
	}
	for _, p := range putBack(t, s, file, "groups", "config") {
		if p.Added+p.Replaced+p.Different != 0 || p.Same == 0 {
			t.Errorf("the second time: %+v", p)
		}
	}
}

// TestPutBack: a restore adds what the bucket does not have, replaces only what differs of named parts, and
// deletes nothing.
func TestPutBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		parts := []string{"config", "groups", "instance", "certlog"}
		objects := rapid.MapOf(rapid.Custom(func(r *rapid.T) string {
			return fmt.Sprintf("%s/a/%d", rapid.SampledFrom(parts).Draw(r, "part"), rapid.IntRange(0, 9).Draw(r, "n"))
		}), rapid.SampledFrom([]string{"", "one", "two"}))
		was := contents(objects.Draw(r, "in the backup"))
		was["cluster/ca.crt"] = certificate("one")
		now := contents(objects.Draw(r, "in the bucket"))
		replace := rapid.SliceOfDistinct(rapid.SampledFrom(slices.Collect(partsOf(was))), rapid.ID).Draw(r, "replace")
		s := now.store(t)
		putBack(t, s, taken(t, was.store(t)), replace...)
		want := maps.Clone(was)
		for key, body := range now {
			if _, in := was[key]; !in || !slices.Contains(replace, backup.Part(key)) {
				want[key] = body
			}
		}
		if got := in(t, s); !maps.Equal(got, want) {
			r.Errorf("put back: %v, want %v", got, want)
		}
	})
}

func partsOf(c contents) func(func(string) bool) {
	parts := map[string]bool{}
	for key := range c {
		parts[backup.Part(key)] = true
	}
	return maps.Keys(parts)
}

// TestWhileGroupsAreMade: no instance of a backup names a group, or a version of one, that the backup lacks,
// though both are written while the bucket is read.
func TestWhileGroupsAreMade(t *testing.T) {
	const old, group, instance = "groups/a/default/old.json", "groups/a/default/web.json", "instance/a/default.1.json"
	for at := range 24 {
		c := contents{"cluster/ca.crt": certificate("one"), "instance/a/default.0.json": "0"}
		if at >= 12 { // otherwise it has no group at first
			c[old] = "1"
		}
		s := c.store(t)
		requests := 0
		busy := objecttest.NewFaults(s, func(objecttest.Request) objecttest.Outcome {
			if requests++; requests == at%12 {
				for _, key := range []string{old, group, instance} {
					if _, err := s.Put(context.Background(), key, []byte("2"), object.Precondition{}); err != nil {
						t.Error(err)
					}
				}
			}
			return objecttest.Outcome{}
		})
		objects := read(t, taken(t, busy))
		if _, in := objects[instance]; in && (string(objects[group]) != "2" || string(objects[old]) != "2") {
			t.Errorf("at request %d: the instance is in the backup, and its groups are %q and %q", at, objects[group], objects[old])
		}
	}
}

// TestNoBackup: a bucket without a cluster, and one that can't be read, have no backup.
func TestNoBackup(t *testing.T) {
	var file bytes.Buffer
	for _, c := range []contents{{}, {"config/a.jsonc": "{}", "cluster/operator/default.1.json": "{}"}} {
		if _, err := backup.Take(t.Context(), c.store(t), &file); !errors.Is(err, backup.ErrNoCluster) {
			t.Errorf("of %v: %v", c, err)
		}
	}
	for at := range 10 {
		requests := 0
		s := objecttest.NewFaults(example().store(t), func(objecttest.Request) objecttest.Outcome {
			if requests++; requests == at+1 {
				return objecttest.Outcome{Fault: objecttest.Refused}
			}
			return objecttest.Outcome{}
		})
		if _, err := backup.Take(t.Context(), s, &file); err == nil {
			t.Errorf("request %d failed, and there is a backup", at+1)
		}
	}
}

// refusing is a store that does not return one object.
func refusing(s object.Store, key string) object.Store {
	return objecttest.NewFaults(s, func(r objecttest.Request) (o objecttest.Outcome) {
		if r.Verb == object.VerbGet && r.Key == key {
			o.Fault = objecttest.Refused
		}
		return o
	})
}

// TestLeftOut: certificate logs that the store does not return, and keys that Nstance can't use, are left out of a
// backup, and named; anything else that it does not return fails the backup. A restore leaves such a log as it is.
func TestLeftOut(t *testing.T) {
	const archived, folder, mark = "certlog/a/default.1.json", "files/", "nstance-backup"
	c := example()
	c[archived], c[mark] = "log", "an earlier backup"
	s := c.store(t)
	var file bytes.Buffer
	got, err := backup.Take(t.Context(), folders{refusing(s, archived), folder}, &file)
	if err != nil || !slices.Equal(got.LeftOut, []string{archived, folder, mark}) {
		t.Errorf("left out %q, %v", got.LeftOut, err)
	}
	read(t, file.Bytes())
	const record = "instance/a/default.1.json"
	if _, err := backup.Take(t.Context(), refusing(s, record), io.Discard); err == nil || !strings.Contains(err.Error(), record) {
		t.Errorf("without %s: %v", record, err)
	}
	for _, p := range putBack(t, refusing(s, archived), taken(t, s), "certlog") {
		if want := p.Part == "certlog"; p.Different == 1 != want || p.Added+p.Replaced > 0 {
			t.Errorf("restored: %+v", p)
		}
	}
}

// TestHarmIsLeftOut: a restore adds no record of an instance that had not registered, and no config of a shard that
// has accepted another one since, unless configs are replaced.
func TestHarmIsLeftOut(t *testing.T) {
	c := example()
	const pending, config = "instance/a/default.2.json", "config/a.jsonc"
	c[pending] = `{"phase": "pending"}`
	file := taken(t, c.store(t))
	for name, tt := range map[string]struct {
		applied string
		replace []string
		added   bool
	}{
		"the same":  {applied: c["applied/a.jsonc"], added: true},
		"another":   {applied: "// later"},
		"asked for": {applied: "// later", replace: []string{"config"}, added: true},
		"none":      {added: true},
	} {
		now := maps.Clone(c)
		delete(now, pending)
		delete(now, config)
		now["applied/a.jsonc"] = tt.applied
		if tt.applied == "" {
			delete(now, "applied/a.jsonc")
		}
		s := now.store(t)
		putBack(t, s, file, tt.replace...)
		got := in(t, s)
		if _, has := got[pending]; has {
			t.Errorf("%s: a pending record was added", name)
		}
		if _, has := got[config]; has != tt.added {
			t.Errorf("%s: the config was added: %t", name, has)
		}
	}
}

// folders is a store with the key of a folder, as a console of S3 makes it.
type folders struct {
	object.Store
	folder string
}

// List implements object.Store.
func (f folders) List(ctx context.Context, prefix, token string) (object.Page, error) {
	p, err := f.Store.List(ctx, prefix, token)
	if strings.HasPrefix(f.folder, prefix) {
		p.Objects = append(p.Objects, object.Info{Key: f.folder})
		slices.SortFunc(p.Objects, func(a, b object.Info) int { return strings.Compare(a.Key, b.Key) })
	}
	return p, err
}

// TestTooLarge: what could not be read again is not backed up.
func TestTooLarge(t *testing.T) {
	c := example()
	c["backups/yesterday.tar.gz"] = strings.Repeat("x", 64<<20+1)
	_, err := backup.Take(t.Context(), c.store(t), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "backups/yesterday.tar.gz has 67108865 bytes") {
		t.Errorf("error %v", err)
	}
}

// TestAnotherCluster: a bucket of another CA is left alone, also by a shard's objects; one that trusts more CAs, or
// fewer, or whose certificate is damaged, is not another cluster's. Without a CA a shard's objects stay out.
func TestAnotherCluster(t *testing.T) {
	objects := read(t, taken(t, example().store(t)))
	shard := backup.Selection{Shards: []string{"a"}}
	for _, tt := range []struct {
		ca   string
		s    backup.Selection
		want error
	}{
		{certificate("two"), backup.Selection{Replace: []string{"cluster"}}, backup.ErrAnotherCluster},
		{certificate("two"), shard, backup.ErrAnotherCluster},
		{certificate("two") + certificate("one"), shard, nil},
		{"damaged", backup.Selection{}, nil},
		{"", backup.Selection{}, nil},
		{"", shard, backup.ErrNoCA},
	} {
		c := contents{"config/b.jsonc": "{}"}
		if tt.ca != "" {
			c["cluster/ca.crt"] = tt.ca
		}
		if _, err := backup.Compare(t.Context(), c.store(t), objects, tt.s); !errors.Is(err, tt.want) {
			t.Errorf("CA %q, %+v: %v, want %v", tt.ca, tt.s, err, tt.want)
		}
	}
}

// TestOrder: a server can start from applied/ and from config/, and makes a CA if there is none. So at each point of a
// restore where one of these is there, the CA is.
func TestOrder(t *testing.T) {
	var written []string
	s := objecttest.NewFaults(contents{}.store(t), func(r objecttest.Request) (o objecttest.Outcome) {
		if r.Verb == object.VerbPut {
			written = append(written, backup.Part(r.Key))
		}
		return o
	})
	c := example()
	c["secrets/ca.key"] = "with a prefix of its own"
	putBack(t, s, taken(t, c.store(t)))
	last := slices.Index(written, "applied")
	for _, part := range []string{"cluster", "secrets", "groups", "instance"} {
		if n := slices.Index(written, part); n < 0 || n > last || slices.Contains(written[last:], part) {
			t.Errorf("%s was written after applied: %v", part, written)
		}
	}
	if slices.Index(written, "config") < last {
		t.Errorf("the order is %v", written)
	}
}

// TestChangedMeanwhile: an object that was written after the comparison is not replaced.
func TestChangedMeanwhile(t *testing.T) {
	for _, before := range []contents{{}, {"groups/a/default/web.json": "older"}} {
		s := before.store(t)
		r, err := backup.Compare(t.Context(), s, read(t, taken(t, example().store(t))), backup.Selection{Replace: []string{"groups"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "groups/a/default/web.json", []byte("newer"), object.Precondition{}); err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(t.Context(), s); err == nil || !strings.Contains(err.Error(), "groups/a/default/web.json changed meanwhile") {
			t.Errorf("apply: %v", err)
		}
		if got := in(t, s)["groups/a/default/web.json"]; got != "newer" {
			t.Errorf("the group is %q", got)
		}
		again, err := backup.Compare(t.Context(), s, read(t, taken(t, example().store(t))), backup.Selection{Replace: []string{"groups"}})
		if err != nil || again.Equal(r) {
			t.Errorf("the comparison is the same, %v", err)
		}
		putBack(t, s, taken(t, example().store(t)), "groups")
		if err := again.Apply(t.Context(), s); err != nil {
			t.Errorf("after another restore: %v", err)
		}
	}
}
