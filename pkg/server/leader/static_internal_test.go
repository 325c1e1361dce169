package leader

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
)

// TestAcceptedConfigThatThisBuildRefuses does not run: a newer version may have accepted a
// provider that this build lacks.
func TestAcceptedConfigThatThisBuildRefuses(t *testing.T) {
	store := mem.New(mem.Config{})
	for key, text := range map[string]string{
		ConfigKey("dev-1"):  `{"broken": `,
		appliedKey("dev-1"): strings.NewReplacer("MORE", "", "GROUPS", "").Replace(minimal),
	} {
		if _, err := store.Put(t.Context(), key, []byte(text), object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	refuse := errors.New("not part of this build")
	s := &Static{
		Store: store, Shard: "dev-1", Check: func(*config.Shard) error { return refuse }, Logger: slog.New(slog.DiscardHandler),
		Checks: func(*config.Shard) config.Checks { return config.Checks{} },
	}
	if c, err := s.Read(t.Context()); !errors.Is(err, refuse) || !strings.Contains(err.Error(), "the last accepted one, ") {
		t.Errorf("%v runs, %v", c.Shard(), err)
	}
	refuse = nil
	if c, err := s.Read(t.Context()); err != nil || !c.fromApplied || c.Shard() == nil {
		t.Errorf("what is accepted here does not run: %v", err)
	}
}
