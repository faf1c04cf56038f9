// SPDX-License-Identifier: Apache-2.0
// Compares calls and numbers of trainmark with those of a maker's header, for programs that tools/judge_headers.sh
// writes. A call is the same if its arguments take the same places: their number, their order, and of each whether it
// is an address, an integer of so many bytes, a float or a struct of so many bytes; what an address leads to counts,
// too, unless one of the two says void. Signs and const do not count, since they change no place.
#ifndef TESTS_GPU_HEADERS_JUDGE_HPP
#define TESTS_GPU_HEADERS_JUDGE_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>

namespace judge
{

template <class T, class = void> struct is_whole : std::false_type {
};
template <class T> struct is_whole<T, std::void_t<decltype(sizeof(T))>> : std::true_type {
};

template <class T> constexpr bool is_number = std::is_integral_v<T> || std::is_enum_v<T>;

template <class A, class B> constexpr bool same()
{
    using a = std::remove_cv_t<A>;
    using b = std::remove_cv_t<B>;
    if constexpr (std::is_void_v<a> || std::is_void_v<b>)
        return std::is_void_v<a> && std::is_void_v<b>;
    else if constexpr (std::is_pointer_v<a> && std::is_pointer_v<b>) {
        using to_a = std::remove_cv_t<std::remove_pointer_t<a>>;
        using to_b = std::remove_cv_t<std::remove_pointer_t<b>>;
        if constexpr (std::is_void_v<to_a> || std::is_void_v<to_b>)
            return true;
        else if constexpr (!is_whole<to_a>::value || !is_whole<to_b>::value)
            return is_whole<to_a>::value == is_whole<to_b>::value;
        else
            return same<to_a, to_b>();
    } else if constexpr (std::is_pointer_v<a>) // CUDA's addresses on the GPU are numbers
        return std::is_void_v<std::remove_pointer_t<a>> && std::is_same_v<b, unsigned long long>;
    else if constexpr (is_number<a> && is_number<b>)
        return sizeof(a) == sizeof(b);
    else if constexpr (std::is_floating_point_v<a> && std::is_floating_point_v<b>)
        return sizeof(a) == sizeof(b);
    else if constexpr (std::is_class_v<a> && std::is_class_v<b>)
        return sizeof(a) == sizeof(b) && alignof(a) == alignof(b);
    else
        return false;
}

template <class T> std::string words()
{
    using t = std::remove_cv_t<T>;
    if constexpr (std::is_void_v<t>)
        return "void";
    else if constexpr (std::is_pointer_v<t>)
        return words<std::remove_pointer_t<t>>() + "*";
    else if constexpr (std::is_function_v<t>)
        return "function";
    else if constexpr (!is_whole<t>::value)
        return "object";
    else {
        const char *kind = std::is_floating_point_v<t> ? "float" : is_number<t> ? "int" : "struct";
        return kind + std::to_string(8 * sizeof(t));
    }
}

template <class F> struct signature { // of any other kind
    static std::string text()
    {
        return "a function of another kind";
    }
};
template <class R, class... A> struct signature<R (*)(A...)> {
    static constexpr std::size_t n = sizeof...(A);
    static std::string           text()
    {
        std::string list;
        ((list += (list.empty() ? "" : ", ") + words<A>()), ...);
        return words<R>() + "(" + list + ")";
    }
};
template <class R, class... A> struct signature<R (*)(A...) noexcept> : signature<R (*)(A...)> {
};

template <class F, class G> struct alike : std::false_type {
};
template <class R, class... A, class S, class... B> struct alike<R (*)(A...), S (*)(B...)> {
    static constexpr bool arguments()
    {
        if constexpr (sizeof...(A) == sizeof...(B))
            return (same<A, B>() && ...);
        else
            return false;
    }
    static constexpr bool value = arguments() && same<R, S>();
};
template <class R, class... A, class S, class... B>
struct alike<R (*)(A...), S (*)(B...) noexcept> : alike<R (*)(A...), S (*)(B...)> {
};

inline int calls, numbers, differences, later;

// `since`: the version in which it came; 0: it was always there.
inline bool is_due(const char *where, const char *name, bool there, long long since, long long version)
{
    bool due = since <= version;
    if (there && due) return true;
    if (!there && !due) {
        later++;
        return false;
    }
    differences++;
    std::printf("DIFFERS %s: %s is %s in version %lld of the header; here it is %s\n", where, name,
                there ? "there" : "missing", version, due ? "needed" : "said to be later");
    return false;
}

template <class F, class G> void call(const char *where, const char *name, long long since, long long version)
{
    if (!is_due(where, name, true, since, version)) return;
    calls++;
    if (alike<F, G>::value) return;
    differences++;
    std::printf("DIFFERS %s: %s: here %s, there %s\n", where, name, signature<F>::text().c_str(),
                signature<G>::text().c_str());
}

inline void number(const char *where, const char *name, long long ours, const char *expression, long long theirs,
                   long long since, long long version)
{
    if (!is_due(where, expression, true, since, version)) return;
    numbers++;
    if (ours == theirs) return;
    differences++;
    std::printf("DIFFERS %s: %s: here %lld, there %lld (%s)\n", where, name, ours, theirs, expression);
}

template <class T> long long value(T v)
{
    if constexpr (std::is_pointer_v<T>)
        return (long long)reinterpret_cast<std::uintptr_t>(v);
    else
        return (long long)v;
}

inline int finish(const char *library, const char *version)
{
    std::printf("%-9s %-10s %3d calls, %3d numbers agree", library, version, calls, numbers);
    if (later) std::printf("; %d are of later versions", later);
    if (differences) std::printf("; %d DIFFER", differences);
    std::printf("\n");
    if (calls + numbers == 0) differences++;
    return differences ? 5 : 0;
}

} // namespace judge

#endif
