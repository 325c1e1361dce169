package admin

import "testing"

// TestConcerns: a rule concerns what has to stay, secrets with a prefix of their own included.
func TestConcerns(t *testing.T) {
	sealed := map[string]bool{"sealed/ca.key": true}
	for prefix, want := range map[string]bool{
		"": true, "s": true, "sealed/": true, "sealed/ca.key": true, "sealed/logs/": false, "config/dev-1": true, "configs/": false,
		"certlog/": false, "ce": false, "c": true, "probe/": false,
	} {
		if got := concerns(prefix, sealed); got != want {
			t.Errorf("%q: %t, want %t", prefix, got, want)
		}
	}
	if concerns("sealed/", nil) {
		t.Error("a folder of something else is concerned")
	}
}
