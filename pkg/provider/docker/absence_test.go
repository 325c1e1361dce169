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

// TestStoppedTwinHidesNothing: a container that has stopped, such as a copy made by hand, may have
// the labels of one that runs, and come first in a list.
func TestStoppedTwinHidesNothing(t *testing.T) {
	spec := newSpec(t, testScope(), nil)
	stopped, living := strings.Repeat("a", 64), strings.Repeat("b", 64)
	p, _ := openFake(t, map[string]response{"GET json": {http.StatusOK, encode(t, []map[string]any{
		{"Id": stopped, "State": "exited", "Labels": spec.Tags}, {"Id": living, "State": "running", "Labels": spec.Tags},
	})}})
	vm, err := provider.GetOne(t.Context(), p, provider.Ref{ID: spec.ID})
	if err != nil || vm.ProviderID != living || vm.State != provider.StateRunning {
		t.Errorf("got %.8q, %s (%v); want the one that runs", vm.ProviderID, vm.State, err)
	}
}

// TestFailedReadIsNotGone: an engine that can't tell has not said that there is no such container.
func TestFailedReadIsNotGone(t *testing.T) {
	spec := newSpec(t, testScope(), nil)
	p, _ := openFake(t, map[string]response{"GET json": {http.StatusInternalServerError, "database is locked"}})
	for _, ref := range []provider.Ref{{ID: spec.ID}, {ID: spec.ID, ProviderID: strings.Repeat("a", 64)}} {
		if _, err := provider.GetOne(t.Context(), p, ref); err == nil || errors.Is(err, provider.ErrNotFound) {
			t.Errorf("get %+v: %v", ref, err)
		}
		if err := provider.DeleteOne(t.Context(), p, ref); err == nil {
			t.Errorf("delete %+v: no error", ref)
		}
	}
}
