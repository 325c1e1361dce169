package config

// Merge overlays objects, later ones on top: objects under the same key are merged
// recursively; any other value replaces the one below. The result shares no memory with the
// layers, and is never nil.
func Merge(layers ...map[string]any) map[string]any {
	out := map[string]any{}
	for _, layer := range layers {
		for k, v := range layer {
			below, isObject := out[k].(map[string]any)
			above, both := v.(map[string]any)
			if isObject && both {
				out[k] = Merge(below, above)
			} else {
				out[k] = copyValue(v)
			}
		}
	}
	return out
}

func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return Merge(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = copyValue(v[i])
		}
		return out
	}
	return v
}
