// Package unpickle decodes pickles of Python without executing them.
//
// A pickle is a program that can call any function. [Decode] calls nothing: it returns an object of
// a class as an [Object], which holds the class and its arguments as data, and rejects each class
// that the caller does not allow. It supports the instructions that Python 3 writes in protocols 2
// to 5 for numbers, strings, bytes, tuples, lists, dicts, and objects.
//
// A hostile pickle needs bounded memory: at most about 100 bytes for each of its bytes, up to a limit
// on the number of values. The result can contain itself, and a value can be in it many times. Code
// that walks it must limit the depth, the number of values, and the size of strings. A message must
// contain only numbers and strings of it, because the text of nested tuples has no limit.
package unpickle

import "fmt"

// Values are nil, bool, int64, float64, string, []byte, and the types below.
type (
	// Tuple is a tuple.
	Tuple []any
	// List is a list.
	List struct{ Items []any }
	// Dict is a dict or an OrderedDict. Its keys and values are in the order of insertion.
	Dict struct{ Keys, Values []any }
	// Class is the name of a class or function with its module, such as "torch.Size".
	Class string
	// Object is the result of a call of a class or function.
	Object struct {
		Class Class
		Args  Tuple
		State any // the argument of __setstate__, or the attributes as a Dict
	}
	// Reference is an object outside of the pickle, such as the storage of a tensor.
	Reference struct{ ID any }
)

// Decode returns the result of a call of orderedDict as a Dict, and of encode as bytes. Protocol 2 has
// no instruction for bytes.
const (
	orderedDict Class = "collections.OrderedDict"
	encode      Class = "_codecs.encode" // with a string of Latin-1 characters
)

// maxValues is the maximum number of values and memo entries in a pickle. The metadata of a
// checkpoint with half a million chunks has about this many.
const maxValues = 32 << 20

// ClassError reports a class that the caller does not allow.
type ClassError struct{ Class Class }

func (e *ClassError) Error() string { return fmt.Sprintf("class %q is not allowed", string(e.Class)) }

// maxAttributes is the maximum number of attributes of an object. Many objects can share their
// attributes, and each lookup reads all of them.
const maxAttributes = 100

// Attribute returns the value of an attribute, or nil if the object does not have it, or has more than
// 100 attributes.
func (o *Object) Attribute(name string) any {
	if d, ok := o.State.(*Dict); ok && len(d.Keys) <= maxAttributes {
		return d.Get(name)
	}
	return nil
}

// Get returns the value of a key, or nil if the dict does not have it.
func (d *Dict) Get(key string) any {
	for i, k := range d.Keys {
		if k == any(key) {
			return d.Values[i]
		}
	}
	return nil
}

// Decode decodes a pickle. Apart from the types above, it can contain only the allowed classes; another
// class is a [*ClassError]. Decode ignores data after the end of the pickle.
func Decode(pickle []byte, allowed map[Class]bool) (any, error) {
	d := decoder{in: pickle, allowed: allowed}
	for {
		begin := d.at
		done, err := d.step()
		if err != nil {
			return nil, fmt.Errorf("pickle: at byte %d: %w", begin, err)
		}
		if done {
			return d.stack[0], nil
		}
	}
}
