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

// TestListLacksAContainer: an engine that has a container and leaves it out of a list, as
// one does for a moment, does not have the instance taken for gone.
func TestListLacksAContainer(t *testing.T) {
	mine, other := newSpec(t, wireScope(), nil), newSpec(t, wireScope(), nil)
	id := strings.Repeat("a", 64)
	var removed atomic.Int32
	engine := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Api-Version", "1.41")
		rw.Header().Set("Content-Type", "application/json")
		_, path, _ := strings.Cut(r.URL.Path, "/containers/")
		labels := map[string]map[string]string{
			"nstance-" + string(mine.ID) + "/json":  mine.Tags,
			"nstance-" + string(other.ID) + "/json": {"made": "by hand"},
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
		t.Errorf("it is %q, %s (%v)", vm.ProviderID, vm.State, err)
	}
	if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: mine.ID}); err != nil || removed.Load() != 1 {
		t.Errorf("%d are removed (%v), want the one that there is", removed.Load(), err)
	}
	// What has the name and is not the instance's is nobody's to end.
	if _, err := provider.GetOne(t.Context(), p, provider.Ref{ID: other.ID}); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("another container of the name is taken for the instance: %v", err)
	}
	if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: other.ID}); err != nil || removed.Load() != 1 {
		t.Errorf("%d are removed (%v), want one still", removed.Load(), err)
	}
}
