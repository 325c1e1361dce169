package s3_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dev "github.com/nstance/nstance/pkg/dev/s3"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest/quirks"
	"github.com/nstance/nstance/pkg/object/s3"
)

// TestQuirks checks the effect of each quirk: detected at the start, or survived. The table of
// docs/storage.md has the same rows and texts.
func TestQuirks(t *testing.T) {
	page, err := os.ReadFile("../../../docs/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range quirks.Modes() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			row := ""
			for line := range strings.Lines(string(page)) {
				if strings.HasPrefix(line, "| "+mode+" |") {
					row = strings.Split(line, "|")[2]
				}
			}
			server, err := dev.New(dev.Config{
				Root: t.TempDir(), Bucket: "bucket", Keys: dev.Key("id", "secret", ""),
				Wrap: func(store http.Handler) http.Handler { return quirks.New(mode, store) },
			})
			if err != nil {
				t.Fatal(err)
			}
			front := httptest.NewServer(server)
			t.Cleanup(func() { front.Close(); server.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = object.Probe(ctx, open(t, s3.Config{Bucket: "bucket", Endpoint: front.URL}), "run")
			want := object.Reason(err)
			if err == nil {
				want = "works"
			}
			if want == "" || !strings.Contains(row, want) {
				t.Errorf("probe: %v; the row %q does not say %q", err, row, want)
			}
		})
	}
}

// TestQuirkRows: the table has exactly one row for each quirk, in order.
func TestQuirkRows(t *testing.T) {
	page, err := os.ReadFile("../../../docs/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n| quirk | what happens at a start | when it comes under a leader |\n| --- | --- | --- |\n")
	if !found {
		t.Fatal("docs/storage.md has no table of quirks")
	}
	var rows []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			break
		}
		rows = append(rows, strings.TrimSpace(cells[1]))
	}
	if modes := quirks.Modes(); !slices.Equal(rows, modes) {
		t.Errorf("the table has rows for %q, want the modes %q", rows, modes)
	}
}
