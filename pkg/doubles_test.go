package pkg_test

import (
	"slices"
	"strings"
	"testing"
)

// TestDoublesStayInTests: no program links a test double, a test suite or the simulation, which are
// the folders that end in "test", and which make lines does not count. An exception is the program
// that serves the double of AWS.
func TestDoublesStayInTests(t *testing.T) {
	ours, _ := list(t)
	imports := map[string][]string{}
	for _, p := range ours {
		for _, imported := range p.Imports {
			if own, ok := strings.CutPrefix(imported, module); ok {
				room := strings.TrimPrefix(p.ImportPath, module)
				imports[room] = append(imports[room], own)
			}
		}
	}
	var linked func(room string, into map[string]bool)
	linked = func(room string, into map[string]bool) {
		if into[room] {
			return
		}
		into[room] = true
		for _, below := range imports[room] {
			linked(below, into)
		}
	}
	may := map[string][]string{"cmd/dev-aws": {"pkg/provider/aws/awstest", "pkg/provider/aws/awstest/policy"}}
	programs := 0
	for _, p := range ours {
		room := strings.TrimPrefix(p.ImportPath, module)
		if !strings.HasPrefix(room, "cmd/") && room != "images" {
			continue
		}
		programs++
		all := map[string]bool{}
		linked(room, all)
		var doubles []string
		for one := range all {
			if strings.Contains(one+"/", "test/") { // as .ci/product finds them
				doubles = append(doubles, one)
			}
		}
		slices.Sort(doubles)
		if !slices.Equal(doubles, may[room]) {
			t.Errorf("%s links %v, want %v", room, doubles, may[room])
		}
	}
	if programs < 8 {
		t.Errorf("only %d programs were found", programs)
	}
}
