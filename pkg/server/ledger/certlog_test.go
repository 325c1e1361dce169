package ledger_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// TestLogCertificates: one object per batch, sorted by time within a tenant, and none
// overwritten.
func TestLogCertificates(t *testing.T) {
	store := mem.New(mem.Config{HashETags: true})
	l, err := ledger.Open(ledger.Config{Store: store, Shard: "dev-1", Writer: "w", Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	at := time.Date(2026, 1, 2, 3, 4, 5, 67, time.UTC)
	batch := ledger.CertificateBatch{
		Tenant: "prod", Instance: "knd01h455vb4pex5vsknk084sn02q", IssuedAt: at,
		Certificates: []ledger.Certificate{{Name: "a.crt", Serial: "4f", Expiry: at.Add(time.Hour)}},
	}
	if err := l.LogCertificates(ctx, batch); err != nil {
		t.Fatal(err)
	}
	want := "certlog/dev-1/prod.20260102T040405000000067Z.20260102T030405000000067Z." + batch.Instance.StorageKey() + ".json"
	o, err := store.Get(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	var have ledger.CertificateBatch
	if err := json.Unmarshal(o.Body, &have); err != nil || have.Certificates[0] != batch.Certificates[0] || have.Instance != batch.Instance {
		t.Errorf("%s holds %s, %v", want, o.Body, err)
	}
	other := batch
	other.Certificates = []ledger.Certificate{{Name: "b.crt", Serial: "50", Expiry: at.Add(time.Hour)}}
	if err := l.LogCertificates(ctx, other); err != nil {
		t.Error(err)
	}
	infos, err := object.All(ctx, store, "certlog/")
	if err != nil || len(infos) != 2 || infos[0].Key != want || infos[0].ETag != o.ETag {
		t.Errorf("the log is %v, %v", infos, err)
	}
	for what, change := range map[string]func(*ledger.CertificateBatch){
		"no tenant":       func(b *ledger.CertificateBatch) { b.Tenant = "" },
		"a path":          func(b *ledger.CertificateBatch) { b.Tenant = "../instance" },
		"no instance":     func(b *ledger.CertificateBatch) { b.Instance = fleet.InstanceID("x") },
		"no certificates": func(b *ledger.CertificateBatch) { b.Certificates = nil },
	} {
		b := batch
		b.IssuedAt = at.Add(time.Hour)
		change(&b)
		if err := l.LogCertificates(ctx, b); err == nil {
			t.Errorf("%s: it was logged", what)
		}
	}
}

// FuzzOldCertificates: whatever objects are below certlog/, those that are taken for old batches have the
// tenant, a time before the limit and an instance in their names.
func FuzzOldCertificates(f *testing.F) {
	id := fleet.InstanceID("knd01h455vb4pex5vsknk084sn02q").StorageKey()
	const at, later = "20260102T030405000000067Z", "20991302T030405000000067Z"
	for _, name := range []string{
		"prod." + at + "." + at + "." + id + ".json", "prod." + at + "." + at + "." + id, "prod." + later + "." + at + "." + id + ".json",
		"prod." + at + ".20260102T030405Z." + id + ".json", "prod.20260102T03040500000006.Z." + id + ".json",
		"Prod." + at + "." + at + "." + id + ".json",
		"prod." + at + "." + at + ".knd.json", at + "." + at + "." + id + ".json", "prod.-0260102T030405000000067Z." + at + "." + id + ".json",
		"prod." + at + "." + id + ".json",
	} {
		f.Add(name)
	}
	form := regexp.MustCompile(`^prod\.(\d{8}T\d{6})\d{9}Z\.\d{8}T\d{15}Z\.[0-9a-f-]{36}-[a-z]{3}\.json$`)
	before := time.Now().Add(time.Hour)
	f.Fuzz(func(t *testing.T, name string) {
		store := mem.New(mem.Config{})
		if _, err := store.Put(t.Context(), "certlog/dev-1/"+name, []byte("{}"), object.Precondition{}); err != nil {
			return // no key
		}
		for page, err := range ledger.OldCertificates(t.Context(), store, "dev-1", "prod", before) {
			if err != nil {
				t.Fatal(err)
			}
			for range page {
				parts := form.FindStringSubmatch(name)
				if parts == nil {
					t.Fatalf("%q is taken for a batch", name)
				}
				if at, err := time.Parse("20060102T150405", parts[1]); err != nil || at.After(before) {
					t.Errorf("%q is taken for an old batch: %v", name, err)
				}
			}
		}
	})
}

// pagesOf counts the pages that are listed.
type pagesOf struct {
	object.Lister
	pages int
}

func (p *pagesOf) List(ctx context.Context, prefix, token string) (object.Page, error) {
	p.pages++
	return p.Lister.List(ctx, prefix, token)
}

// TestOldCertificatesCostWhatIsOld: a listing ends at the first batch that is not old, and has no other tenant's.
func TestOldCertificatesCostWhatIsOld(t *testing.T) {
	store := mem.New(mem.Config{})
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	id := fleet.InstanceID("knd01h455vb4pex5vsknk084sn02q").StorageKey()
	for n := range 500 {
		for _, tenant := range []string{"a", "a-b", "b"} {
			key := "certlog/dev-1/" + tenant + "." + start.Add(time.Duration(n)*time.Hour).Format("20060102T150405") + "000000000Z." +
				start.Format("20060102T150405") + "000000000Z." + id + ".json"
			if _, err := store.Put(t.Context(), key, []byte("{}"), object.Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The objects were written today, but the limit is not: only the names are old.
	lister := &pagesOf{Lister: aged{store}}
	ctx := object.WithPageSize(t.Context(), 10)
	var keys []string
	for page, err := range ledger.OldCertificates(ctx, lister, "dev-1", "a", start.Add(25*time.Hour)) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, page...)
	}
	if len(keys) != 25 || lister.pages != 3 || !strings.HasPrefix(keys[24], "certlog/dev-1/a.20260103T03") {
		t.Errorf("%d keys on %d pages, want 25 on 3: %v", len(keys), lister.pages, keys)
	}
}

// aged lists objects as if they were written long ago.
type aged struct{ object.Lister }

func (a aged) List(ctx context.Context, prefix, token string) (object.Page, error) {
	page, err := a.Lister.List(ctx, prefix, token)
	for n := range page.Objects {
		page.Objects[n].ModTime = time.Time{}
	}
	return page, err
}

// TestRemoveCertificates: the limit may have moved since the listing.
func TestRemoveCertificates(t *testing.T) {
	store := mem.New(mem.Config{})
	l, err := ledger.Open(ledger.Config{Store: store, Shard: "dev-1", Writer: "w", Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	issued := time.Date(2026, 1, 2, 3, 4, 5, 67, time.UTC)
	end := issued.AddDate(10, 0, 0)
	if err := l.LogCertificates(t.Context(), ledger.CertificateBatch{
		Tenant: "prod", Instance: "knd01h455vb4pex5vsknk084sn02q", IssuedAt: issued,
		Certificates: []ledger.Certificate{{Expiry: issued.Add(time.Hour)}, {Expiry: end}, {Expiry: issued.Add(time.Minute)}},
	}); err != nil {
		t.Fatal(err)
	}
	infos, err := object.All(t.Context(), store, "")
	if err != nil || len(infos) != 1 {
		t.Fatal(infos, err)
	}
	w := l.Lead(term{epoch: 1})
	for _, step := range []struct {
		key    string
		before time.Time
		goes   bool
	}{{infos[0].Key, end, false}, {"config/dev-1.jsonc", end.AddDate(1, 0, 0), false}, {infos[0].Key, end.Add(1), true}} {
		if removed, err := w.RemoveCertificates(t.Context(), step.key, step.before); err != nil || removed != step.goes {
			t.Errorf("%+v: %t, %v", step, removed, err)
		}
	}
	if infos, err = object.All(t.Context(), store, ""); err != nil || len(infos) != 0 {
		t.Errorf("left: %v, %v", infos, err)
	}
}
