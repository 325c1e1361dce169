package docker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// TestContainerMissingFromList: an instance whose container is missing from a list, as may
// happen for a moment, does not count as gone.
func TestContainerMissingFromList(t *testing.T) {
	mine, other := newSpec(t, testScope(), nil), newSpec(t, testScope(), nil)
	id := strings.Repeat("a", 64)
	var removed atomic.Int32
	engine := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Api-Version", "1.41")
		rw.Header().Set("Content-Type", "application/json")
		_, path, _ := strings.Cut(r.URL.Path, "/containers/")
		labels := map[string]map[string]string{
			"nstance-" + string(mine.ID) + "/json":  mine.Tags,
			"nstance-" + string(other.ID) + "/json": {"role": "other"},
		}[path]
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		case path == "json":
			fmt.Fprint(rw, "[]")
		case path == id && r.Method == http.MethodDelete:
			removed.Add(1)
			rw.WriteHeader(http.StatusNoContent)
		case labels != nil:
			_ = json.NewEncoder(rw).Encode(map[string]any{
				"Id": id, "State": map[string]any{"Status": "running"}, "Config": map[string]any{"Labels": labels},
			})
		default:
			rw.WriteHeader(http.StatusNotFound)
			fmt.Fprint(rw, `{"message": "No such container"}`)
		}
	}))
	t.Cleanup(engine.Close)
	p := openHost(t, "tcp://"+strings.TrimPrefix(engine.URL, "http://"))
	vm, err := provider.GetOne(t.Context(), p, provider.Ref{ID: mine.ID})
	if err != nil || vm.ProviderID != id || vm.State != provider.StateRunning {
		t.Errorf("got %q, %s (%v)", vm.ProviderID, vm.State, err)
	}
	if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: mine.ID}); err != nil || removed.Load() != 1 {
		t.Errorf("%d removed (%v), want 1", removed.Load(), err)
	}
	// A container that has the name but is not the instance's is never removed.
	if _, err := provider.GetOne(t.Context(), p, provider.Ref{ID: other.ID}); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("another container with the instance's name: %v, want ErrNotFound", err)
	}
	if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: other.ID}); err != nil || removed.Load() != 1 {
		t.Errorf("%d removed (%v), want still 1", removed.Load(), err)
	}
}
