package ledger_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
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
	want := "certlog/dev-1/prod.20260102T030405000000067Z." + batch.Instance.StorageKey() + ".json"
	o, err := store.Get(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	var have ledger.CertificateBatch
	if err := json.Unmarshal(o.Body, &have); err != nil || have.Certificates[0] != batch.Certificates[0] || have.Instance != batch.Instance {
		t.Errorf("%s holds %s, %v", want, o.Body, err)
	}
	other := batch
	other.Certificates = []ledger.Certificate{{Name: "b.crt", Serial: "50", Expiry: at}}
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

// FuzzOldCertificates: whatever objects are below certlog/, those that are taken for old batches have a
// tenant, a time before the limit and an instance in their names.
func FuzzOldCertificates(f *testing.F) {
	id := fleet.InstanceID("knd01h455vb4pex5vsknk084sn02q").StorageKey()
	for _, name := range []string{
		"prod.20260102T030405000000067Z." + id + ".json", "prod.20260102T030405000000067Z." + id,
		"prod.20991302T030405000000067Z." + id + ".json", "prod.20260102T030405Z." + id + ".json",
		"prod.20260102T03040500000006.Z." + id + ".json", "Prod.20260102T030405000000067Z." + id + ".json",
		"prod.20260102T030405000000067Z.knd.json", "20260102T030405000000067Z." + id + ".json", "prod.-0260102T030405000000067Z." + id + ".json",
	} {
		f.Add(name)
	}
	form := regexp.MustCompile(`^[a-z0-9-]+\.(\d{8}T\d{6})\d{9}Z\.[0-9a-f-]{36}-[a-z]{3}\.json$`)
	before := time.Now().Add(time.Hour)
	f.Fuzz(func(t *testing.T, name string) {
		store := mem.New(mem.Config{})
		if _, err := store.Put(t.Context(), "certlog/dev-1/"+name, []byte("{}"), object.Precondition{}); err != nil {
			return // no key
		}
		for page, err := range ledger.OldCertificates(t.Context(), store, "dev-1", before) {
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
