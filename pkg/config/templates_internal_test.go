package config

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// More text than is kept is rendered all the same, and so is what was dropped meanwhile.
func TestTemplatesAreBounded(t *testing.T) {
	const size, count, workers = 60_000, 20, 4
	templates := NewTemplates()
	values := templates.For(Facts{Instance: InstanceFacts{ID: "knd1"}})
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for n := range count * 3 {
				filling := strings.Repeat("x", size) + fmt.Sprint(n%count)
				if got, err := values.Render("x", "{{ .Instance.ID }}"+filling); err != nil || got != "knd1"+filling {
					t.Errorf("template %d: %v", n, err)
				}
			}
		})
	}
	done.Wait()
	bytes := 0
	for text := range templates.kept {
		bytes += len(text)
	}
	if bytes != templates.bytes || bytes > maxTemplates || bytes < maxTemplates-2*size {
		t.Errorf("%d bytes are kept, and %d are counted: want as many as fit into %d", bytes, templates.bytes, maxTemplates)
	}
	if len(templates.kept) == 0 {
		t.Error("nothing is kept")
	}
}
